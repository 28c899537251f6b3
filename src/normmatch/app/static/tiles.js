// Photographs in pieces, so that one of 6,000 x 4,000 pixels stays smooth: a small copy of all of it, shown at once, and
// tiles of 512 pixels at 1/1, 1/2 and 1/4, asked for where one looks. A source is {id, width, height, whole(), tile()}:
// whole() promises a bitmap of the small copy, tile(level, column, row, signal) one of a tile.

const SIDE = 512;
const LEVELS = [4, 2, 1]; // so many pixels of the photograph are one of the tile
const MOST = 64; // tiles that are kept, some 64 MB
const COPIES = 12; // small copies that are kept
const AT_ONCE = 4; // requests on their way

const tiles = new Map(); // by key, the least recently used first: {bitmap} or {asked: AbortController}
const copies = new Map(); // by id: {bitmap, promise}
const waiting = []; // tiles to ask for, the most wanted first
let asking = 0;

// The small copy of a photograph; asked for once, and kept while it is among those used last.
export function wholeOf(source) {
  let copy = copies.get(source.id);
  copies.delete(source.id);
  if (!copy) {
    copy = { bitmap: null };
    copy.promise = source.whole().then(
      (bitmap) => (copy.bitmap = bitmap),
      () => { copies.delete(source.id); return null; }, // asked for again when it is next wanted
    );
  }
  copies.set(source.id, copy);
  if (copies.size > COPIES) copies.delete(copies.keys().next().value); // whoever shows it still holds it
  return copy;
}

// The level whose pixels are nearest to those of the screen without being coarser, or null where the copy is fine enough.
export function levelFor(source, scale, whole) {
  if (!source.tile || (whole && scale * source.width < whole.width * 1.1)) return null;
  return LEVELS.find((level) => scale * level <= 1.25) ?? 1;
}

function keysIn(source, level, { x, y, width, height }) {
  const step = SIDE * level;
  const [left, top] = [Math.max(0, Math.floor(x / step)), Math.max(0, Math.floor(y / step))];
  const right = Math.min(Math.ceil((x + width) / step), Math.ceil(source.width / step));
  const bottom = Math.min(Math.ceil((y + height) / step), Math.ceil(source.height / step));
  const found = [];
  for (let row = top; row < bottom; row++) for (let column = left; column < right; column++) found.push([column, row]);
  return found.slice(0, MOST - 8);
}

// Paint a region of a photograph into a context whose unit is a pixel of the photograph; `scale` is how many pixels of
// the screen it has. What is not there yet is left coarse.
export function paintRegion(context, source, region, scale, bitmap = wholeOf(source).bitmap) {
  context.imageSmoothingQuality = "high";
  if (bitmap) context.drawImage(bitmap, 0, 0, source.width, source.height);
  const level = levelFor(source, scale, bitmap);
  if (level == null) return;
  for (const [column, row] of keysIn(source, level, region)) {
    const key = `${source.id} ${level} ${column} ${row}`;
    const tile = tiles.get(key);
    if (!tile?.bitmap) continue;
    tiles.delete(key); // used last
    tiles.set(key, tile);
    paintTile(context, source, tile);
  }
}

export function paintTile(context, source, { bitmap, level, column, row }) {
  const [x, y] = [column * SIDE * level, row * SIDE * level];
  context.drawImage(bitmap, x, y, Math.min(SIDE * level, source.width - x), Math.min(SIDE * level, source.height - y));
}

// Ask for the tiles of a region; `arrived(tile)` is called for each. Those that the same `owner` asked for before and that
// are no longer wanted are dropped.
export function askFor(owner, source, region, scale, arrived) {
  const level = levelFor(source, scale, wholeOf(source).bitmap);
  const wanted = level == null ? [] : keysIn(source, level, region).map(([column, row]) => ({
    key: `${source.id} ${level} ${column} ${row}`, column, row
  }));
  drop(owner, new Set(wanted.map(({ key }) => key)));
  for (const { key, column, row } of wanted) {
    const known = tiles.get(key);
    if (known?.bitmap) arrived(known);
    else if (known) Object.assign(known, { owner, arrived: both(known.arrived, arrived) });
    if (known) continue;
    const asked = new AbortController();
    const tile = { key, owner, level, column, row, asked, arrived, run: () => source.tile(level, column, row, asked.signal) };
    tiles.set(key, tile);
    waiting.push(tile);
  }
  pump();
}

const both = (one, other) => (one === other ? one : (tile) => { one(tile); other(tile); });

export function drop(owner, but = new Set()) {
  for (const [key, tile] of tiles) {
    if (tile.bitmap || tile.owner !== owner || but.has(key)) continue;
    tile.asked.abort();
    tiles.delete(key);
  }
}

function pump() {
  while (asking < AT_ONCE && waiting.length) {
    const tile = waiting.shift();
    if (tile.asked.signal.aborted) continue;
    asking += 1;
    tile.run().then(
      (bitmap) => {
        if (tiles.get(tile.key) !== tile) return bitmap.close();
        tile.bitmap = bitmap;
        forget();
        tile.arrived(tile);
      },
      () => tiles.get(tile.key) === tile && tiles.delete(tile.key),
    ).finally(() => {
      asking -= 1;
      pump();
    });
  }
}

function forget() {
  const kept = [...tiles].filter(([, tile]) => tile.bitmap);
  for (const [key, { bitmap }] of kept.slice(0, Math.max(0, kept.length - MOST))) {
    tiles.delete(key);
    bitmap.close();
  }
}

export const tileCount = () => [...tiles.values()].filter((tile) => tile.bitmap).length;

async function bitmapOf(address, signal) {
  const answer = await fetch(address, { signal });
  if (!answer.ok) throw new Error(`The server answered with ${answer.status}.`);
  return createImageBitmap(await answer.blob());
}

// A photograph that the server has: `copy` is the address of its small copy, `tile` of a tile.
export const servedSource = (id, { width, height }, copy, tile) => ({
  id, width, height,
  whole: () => bitmapOf(copy),
  tile: Math.max(width, height) > 1500 ? (level, column, row, signal) => bitmapOf(tile(level, column, row), signal) : null,
});

// A file of the person's, with a small copy of it as a blob: the browser cuts the tiles, if it can read the file at all;
// else the copy has to do.
export function fileSource(id, { width, height, file, copy }) {
  let full = null;
  const opened = () => (full ??= createImageBitmap(file));
  return {
    id, width, height,
    whole: () => createImageBitmap(copy),
    tile: async (level, column, row) => {
      const [x, y] = [column * SIDE * level, row * SIDE * level];
      const [w, h] = [Math.min(SIDE * level, width - x), Math.min(SIDE * level, height - y)];
      const bitmap = await opened();
      return createImageBitmap(
        bitmap, x, y, w, h, { resizeWidth: Math.ceil(w / level), resizeHeight: Math.ceil(h / level), resizeQuality: "medium" }
      );
    },
  };
}
