// The drawings of the pages: signs of certainty and state, and icons of buttons. Paths alone, so that nothing is loaded.

const SIGNS = {
  person: '<circle r="5.5" fill="none"/><circle r="2.6" fill="currentColor" stroke="none"/>',
  kept: '<path d="M-5 .5-1.5 4 5-4" fill="none"/>',
  reviewed: '<circle r="7" fill="currentColor" stroke="none"/><path d="M-3.2.4-1 2.6 3.4-2.4" fill="none" stroke="var(--surface)"/>',
  sure: '<circle r="5.5" fill="none"/>',
  unsure: '<path d="M0-6.5 6.5 0 0 6.5-6.5 0Z" fill="none"/>',
  doubt: '<path d="M0-6 6.5 5.5h-13Z" fill="none"/>',
  absent: '<circle r="5.5" fill="none" stroke-dasharray="2.6 2.2"/><path d="m-6 6 12-12" fill="none"/>',
  unset: '<circle r="5.5" fill="none" stroke-dasharray="2 2.6"/>',
  slip: '<path d="M-5 7.5V-6.5h10L2.5-2.5 5 1.5H-5" fill="none"/>',
  copied: '<rect x="-5" y="-5" width="10" height="10" fill="none"/>',
};

const ICONS = {
  left: '<path d="m12 4-6 6 6 6"/>',
  right: '<path d="m8 4 6 6-6 6"/>',
  down: '<path d="m5 8 5 5 5-5"/>',
  check: '<path d="m4 10.5 4 4 8-9"/>',
  undo: '<path d="M7 4 3 8l4 4M3 8h8.5a4.5 4.5 0 0 1 0 9H8"/>',
  redo: '<path d="m13 4 4 4-4 4M17 8H8.5a4.5 4.5 0 0 0 0 9H12"/>',
  export: '<path d="M10 3v9m-4-4 4 4 4-4M4 13v3h12v-3"/>',
  propose: '<circle cx="10" cy="10" r="4"/><path d="M10 1.5V6M10 14v4.5M1.5 10H6M14 10h4.5"/>',
  help: '<circle cx="10" cy="10" r="7.5"/><path d="M7.8 8a2.2 2.2 0 1 1 3.4 1.8c-.8.6-1.2 1-1.2 1.9M10 14.2v.1"/>',
  auto: '<circle cx="10" cy="10" r="7"/><path d="M10 3a7 7 0 0 1 0 14Z" fill="currentColor"/>',
  light: '<circle cx="10" cy="10" r="3.5"/><path d="M10 1.8v2m0 12.4v2M1.8 10h2m12.4 0h2M4.2 4.2l1.4 1.4m8.8 8.8 1.4 1.4m0-11.6-1.4 1.4m-8.8 8.8-1.4 1.4"/>',
  dark: '<path d="M16.5 12A7 7 0 0 1 8 3.5a7 7 0 1 0 8.5 8.5Z"/>',
  more: '<g fill="currentColor" stroke="none"><circle cx="4" cy="10" r="1.7"/><circle cx="10" cy="10" r="1.7"/><circle cx="16" cy="10" r="1.7"/></g>',
  absent: '<circle cx="10" cy="10" r="6" stroke-dasharray="3 2.5"/><path d="m3.5 16.5 13-13"/>',
  swap: '<path d="M3 7h13m-3.5-3.5L16 7l-3.5 3.5M17 13H4m3.5-3.5L4 13l3.5 3.5"/>',
  copy: '<rect x="7" y="7" width="10" height="10" rx="2"/><path d="M13 7V5a2 2 0 0 0-2-2H5a2 2 0 0 0-2 2v6a2 2 0 0 0 2 2h2"/>',
  clear: '<path d="m5 5 10 10M15 5 5 15"/>',
  grid: '<rect x="3" y="3" width="5.5" height="5.5" rx="1"/><rect x="11.5" y="3" width="5.5" height="5.5" rx="1"/><rect x="3" y="11.5" width="5.5" height="5.5" rx="1"/><rect x="11.5" y="11.5" width="5.5" height="5.5" rx="1"/>',
  fit: '<path d="M3 7V3h4m6 0h4v4m0 6v4h-4m-6 0H3v-4"/>',
  plus: '<path d="M10 4v12M4 10h12"/>',
  minus: '<path d="M4 10h12"/>',
  warn: '<path d="M10 3 1.8 17h16.4ZM10 8v4m0 2.3v.1"/>',
  windows: '<rect x="2.5" y="6.5" width="11" height="10" rx="1.5"/><path d="M6.5 6.5v-3h11v10h-4"/>',
  save: '<circle cx="10" cy="10" r="7.5"/><path d="m6.5 10.3 2.5 2.5 4.5-5"/>',
  busy: '<path d="M10 2.5A7.5 7.5 0 1 1 2.5 10"/>',
  list: '<path d="M7 5h10M7 10h10M7 15h10M3 5h.1M3 10h.1M3 15h.1"/>',
};

const drawn = new Map(); // each is read once and copied

function drawing(kind, box, inside) {
  const key = kind + inside;
  if (!drawn.has(key)) {
    const text = `<svg xmlns="http://www.w3.org/2000/svg" class="${kind}" viewBox="${box}" aria-hidden="true">${inside}</svg>`;
    drawn.set(key, new DOMParser().parseFromString(text, "image/svg+xml").documentElement);
  }
  return document.importNode(drawn.get(key), true);
}

export const sign = (name) => drawing(`glyph ${name}`, "-8 -8 16 16", SIGNS[name]);
export const icon = (name) => drawing("icon", "0 0 20 20", ICONS[name]);
