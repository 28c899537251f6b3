// How animals lie in their photographs, so that crops of all can be turned the same way.

import { placedIn, reviewed } from "./project.js";

// How a photograph is turned and how large its animal is, against the first reviewed one.
export function poseOf(photo) {
  const points = placedIn(photo);
  const model = reviewed()[0];
  const long = lengthOf(points) || Math.max(photo.width, photo.height) / 2;
  return { angle: model && model !== photo ? angleBetween(points, placedIn(model)) : 0, long };
}

// How far the points of one photograph are turned against those of another, by the best shift, turn and size (Procrustes).
export function angleBetween(points, onto) {
  const both = points.map((point, k) => [point, onto[k]]).filter(([a, b]) => a && b);
  if (both.length < 2) return 0;
  const middle = (k) => ["x", "y"].map((axis) => both.reduce((sum, pair) => sum + pair[k][axis], 0) / both.length);
  const [[ax, ay], [bx, by]] = [middle(0), middle(1)];
  let [re, im] = [0, 0];
  for (const [p, q] of both) {
    const [px, py, qx, qy] = [p.x - ax, p.y - ay, q.x - bx, q.y - by];
    re += px * qx + py * qy;
    im += px * qy - py * qx;
  }
  return -Math.atan2(im, re);
}

// About how long the animal is: the farthest of its points, of those a person would see.
export function lengthOf(points) {
  let longest = 0;
  for (const a of points) for (const b of points) if (a && b) longest = Math.max(longest, Math.hypot(a.x - b.x, a.y - b.y));
  return longest;
}
