// A photograph that can be looked at closely, on two canvases: the photograph, painted when the view changes, and the
// marks, painted when they change; each at most once a frame.
//
// hooks: paint(context, picture), viewed(); and those of gestures.js: grab, tap, hover, hold.

import { make, onceAFrame } from "./dom.js";
import { Gestures } from "./gestures.js";
import { askFor, drop, paintRegion, wholeOf } from "./tiles.js";
import { View } from "./view.js";

const REST = 140; // milliseconds that the view has to rest before tiles are asked for

export class Picture {
  constructor(frame, hooks) {
    Object.assign(this, { frame, hooks, view: new View(frame), source: null, light: 1 });
    this.layers = ["photograph", "marks"].map((name) => frame.appendChild(make(
      "canvas", { class: name, "aria-hidden": "true" }
    )));
    this.redraw = onceAFrame(() => { this.drawPhotograph(); this.drawMarks(); });
    this.redrawMarks = onceAFrame(() => this.drawMarks());
    this.gestures = new Gestures(this, hooks);
    new ResizeObserver(() => this.resize()).observe(frame);
  }

  get photo() { return this.view.photo; }
  get size() { return this.view.size; }
  toScreen(point) { return this.view.toScreen(point); }
  toPhoto(at) { return this.view.toPhoto(at); }
  inside(point) { return this.view.inside(point); }

  // photo: {width, height}; source: where its pixels come from (tiles.js), null if it cannot be read
  show(photo, source, box = null) {
    this.view.photo = photo;
    this.source = source;
    this.copy = source && wholeOf(source);
    this.copy?.promise.then(() => { this.redraw(); this.sharpen(); });
    this.fit(box ?? { x: 0, y: 0, width: photo.width, height: photo.height });
  }

  clear() {
    this.view.photo = this.source = null;
    this.redraw();
  }

  resize() {
    for (const layer of this.layers) {
      layer.width = Math.round(this.size.width * devicePixelRatio);
      layer.height = Math.round(this.size.height * devicePixelRatio);
    }
    if (this.photo && this.view.fitted && this.size.width) this.fit(this.view.fitted);
    else this.redraw();
  }

  fit(box) { this.view.fit(box); this.viewed(); }
  zoom(factor, at) { if (this.photo) { this.view.zoom(factor, at); this.viewed(); } }
  pan(dx, dy) { if (this.photo) { this.view.pan(dx, dy); this.viewed(); } }
  get fitted() { return this.view.fitted; }

  reveal(point) {
    const away = this.view.away(point);
    if (away) this.pan(...away);
  }

  viewed() {
    this.redraw();
    this.hooks.viewed?.();
    clearTimeout(this.resting);
    this.resting = setTimeout(() => this.sharpen(), REST);
  }

  sharpen() {
    if (this.source && this.copy.bitmap) askFor(
      this, this.source, this.view.region, this.view.scale * devicePixelRatio, this.redraw
    );
    else drop(this);
  }

  drawPhotograph() {
    const context = this.layers[0].getContext("2d");
    const { scale, x, y, region } = this.photo ? this.view : {};
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.clearRect(0, 0, this.layers[0].width, this.layers[0].height);
    if (!this.source) return;
    const ratio = devicePixelRatio;
    context.setTransform(scale * ratio, 0, 0, scale * ratio, x * ratio, y * ratio);
    context.filter = this.light === 1 ? "none" : `brightness(${this.light})`; // for the eye only
    context.imageSmoothingEnabled = scale < 4; // then the pixels themselves are what one wants to see
    paintRegion(context, this.source, region, scale * ratio, this.copy.bitmap);
  }

  drawMarks() {
    const context = this.layers[1].getContext("2d");
    context.setTransform(devicePixelRatio, 0, 0, devicePixelRatio, 0, 0);
    context.clearRect(0, 0, this.size.width, this.size.height);
    if (this.photo) this.hooks.paint(context, this);
  }
}
