// Mouse, pen and fingers on a photograph: one pointer moves a mark or the view, two pinch, a long press places.
//
// hooks: grab(at, event) -> drag or null, tap(at, event), hover(at, event), hold(at, event) -> drag or null;
// a drag is {move(at, event), end(moved), cancel()}.

const MOVED = 4; // pixels of the screen: less is a click, not a drag
const HOLD = 350; // milliseconds of a long press

export class Gestures {
  constructor(picture, hooks) {
    Object.assign(this, { picture, hooks, frame: picture.frame, pointers: new Map(), drag: null, moved: false });
    const { frame } = this;
    frame.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    frame.addEventListener("pointerdown", (event) => this.press(event));
    frame.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, (event) => this.release(event));
    frame.addEventListener("pointerleave", () => hooks.hover?.(null));
    frame.addEventListener("mousedown", (event) => event.button === 1 && event.preventDefault()); // it pans, and does not scroll
    for (const name of ["dblclick", "contextmenu"]) frame.addEventListener(name, (event) => event.preventDefault());
  }

  at(event) {
    const { left, top } = this.frame.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }

  wheel(event) {
    event.preventDefault();
    if (!this.picture.photo) return;
    const lines = event.deltaMode === 1 ? 16 : 1; // some browsers count in lines
    if (event.shiftKey) this.picture.pan(-(event.deltaX || event.deltaY) * lines, 0);
    // a pinch on a touchpad comes as a wheel with Ctrl, in small steps
    else this.picture.zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0016)), this.at(event));
  }

  press(event) {
    if (!this.picture.photo || event.button === 2 || event.target.closest("button, .card")) return;
    this.frame.setPointerCapture(event.pointerId);
    const at = this.at(event);
    this.pointers.set(event.pointerId, at);
    clearTimeout(this.pressed);
    if (this.pointers.size > 1) { // a second finger takes back a drag that had begun
      this.drag?.cancel();
      this.finish();
      this.moved = true;
      return;
    }
    Object.assign(this, { start: at, moved: false });
    this.drag = event.button === 1 ? null : (this.hooks.grab?.(at, event) ?? null);
    if (this.drag) this.frame.classList.add("dragging");
    else if (event.pointerType === "touch") this.pressed = setTimeout(
      () => { this.drag = this.hooks.hold?.(this.start, event) ?? null; }, HOLD
    );
  }

  move(event) {
    if (!this.picture.photo) return;
    const at = this.at(event);
    const before = this.pointers.get(event.pointerId);
    if (!before) return this.hooks.hover?.(at, event);
    if (this.pointers.size > 1) this.pinch(event.pointerId, before, at);
    else this.moveOne(before, at, event);
    this.pointers.set(event.pointerId, at);
  }

  pinch(id, before, at) {
    const other = [...this.pointers].find(([known]) => known !== id)[1];
    const apart = (point) => Math.max(Math.hypot(point.x - other.x, point.y - other.y), 1);
    this.picture.zoom(apart(at) / apart(before), { x: (at.x + other.x) / 2, y: (at.y + other.y) / 2 });
    this.picture.pan((at.x - before.x) / 2, (at.y - before.y) / 2);
  }

  moveOne(before, at, event) {
    if (!this.moved && Math.hypot(at.x - this.start.x, at.y - this.start.y) > MOVED) {
      this.moved = true;
      if (!this.drag) clearTimeout(this.pressed);
    }
    if (this.drag) this.drag.move(at, event);
    else if (this.moved) {
      this.frame.classList.add("panning");
      this.picture.pan(at.x - before.x, at.y - before.y);
    }
  }

  release(event) {
    if (!this.pointers.delete(event.pointerId)) return;
    clearTimeout(this.pressed);
    if (event.type === "pointercancel") this.drag?.cancel();
    else if (this.drag) this.drag.end(this.moved);
    else if (!this.moved && event.button !== 1) this.hooks.tap?.(this.at(event), event);
    this.finish();
  }

  // Esc: the mark goes back, and the pointer does nothing until it is pressed again.
  cancel() {
    if (!this.drag) return false;
    this.drag.cancel();
    this.finish();
    this.pointers.clear();
    return true;
  }

  finish() {
    this.drag = null;
    this.frame.classList.remove("dragging", "panning");
  }
}
