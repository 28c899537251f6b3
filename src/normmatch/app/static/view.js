// Which part of a photograph a frame shows: scale (pixels of the screen for one of the photograph) and a shift.

import { clamp } from "./dom.js";

const LARGEST = 16; // so that a tenth of a pixel can be seen
const MARGIN = 8; // pixels around what was fitted
const KEPT = 80; // so much of the photograph stays in sight
const NEAR = 24; // pixels from the edge at which a point counts as hidden

export class View {
  constructor(frame) {
    Object.assign(this, { frame, photo: null, scale: 1, x: 0, y: 0, fitted: null });
  }

  get size() {
    return { width: this.frame.clientWidth, height: this.frame.clientHeight };
  }

  toScreen({ x, y }) {
    return { x: x * this.scale + this.x, y: y * this.scale + this.y };
  }

  toPhoto({ x, y }) {
    return { x: (x - this.x) / this.scale, y: (y - this.y) / this.scale };
  }

  inside({ x, y }) {
    return { x: clamp(x, 0, this.photo.width), y: clamp(y, 0, this.photo.height) };
  }

  // The part of the photograph that is in sight.
  get region() {
    const { width, height } = this.size;
    const [from, to] = [this.inside(this.toPhoto({ x: 0, y: 0 })), this.inside(this.toPhoto({ x: width, y: height }))];
    return { x: from.x, y: from.y, width: to.x - from.x, height: to.y - from.y };
  }

  set(view) {
    Object.assign(this, view, { fitted: view.fitted ?? null });
  }

  fit(box) {
    const { width, height } = this.size;
    const scale = Math.min((width - 2 * MARGIN) / box.width, (height - 2 * MARGIN) / box.height, LARGEST);
    // where there is room for all of it the photograph is in the middle; else it fills the frame as far as it reaches
    const along = (room, all, middle) => {
      const size = all * scale;
      return size <= room ? (room - size) / 2 : clamp(room / 2 - middle * scale, room - MARGIN - size, MARGIN);
    };
    const x = along(width, this.photo.width, box.x + box.width / 2);
    const y = along(height, this.photo.height, box.y + box.height / 2);
    this.set({ scale, x, y, fitted: box });
  }

  zoom(factor, at = { x: this.size.width / 2, y: this.size.height / 2 }) {
    const least = Math.min(this.size.width / this.photo.width, this.size.height / this.photo.height) * 0.5;
    const scale = clamp(this.scale * factor, Math.min(least, 1), LARGEST);
    this.set({ scale, x: at.x - ((at.x - this.x) * scale) / this.scale, y: at.y - ((at.y - this.y) * scale) / this.scale });
  }

  pan(dx, dy) {
    const { width, height } = this.size;
    const x = clamp(this.x + dx, KEPT - this.photo.width * this.scale, width - KEPT);
    const y = clamp(this.y + dy, KEPT - this.photo.height * this.scale, height - KEPT);
    this.set({ scale: this.scale, x, y });
  }

  // Whether a point would have to be looked for; `pan` by the answer brings it to the middle.
  away(point) {
    const { width, height } = this.size;
    const at = this.toScreen(point);
    const hidden = at.x < NEAR || at.y < NEAR || at.x > width - NEAR || at.y > height - NEAR;
    return hidden ? [width / 2 - at.x, height / 2 - at.y] : null;
  }
}
