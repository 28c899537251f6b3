// What a key is called: digits by place, since some keyboards need Shift for them; letters by sign.

export const nameOfKey = ({ key, code = "", shiftKey }) => {
  const plain = key === " " ? "Space" : key.length === 1 ? key.toLowerCase() : key;
  return {
    digit: code.match(/^Digit(\d)$/)?.[1] ?? null, key: plain, full: shiftKey && /^[a-z]$/.test(plain) ? `Shift+${plain}` : plain
  };
};
