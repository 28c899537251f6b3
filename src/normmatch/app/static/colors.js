// The colour of a score: viridis, as in the pictures of the command line.

const STOPS = ["#440154", "#482878", "#3e4989", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"]
  .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));

export const UNMATCHED = "#9aa0a8";
export const POINT = "#1f8fff";

export function rgb(share) {
  const place = Math.min(Math.max(share, 0), 1) * (STOPS.length - 1);
  const low = Math.min(Math.floor(place), STOPS.length - 2);
  return STOPS[low].map((value, k) => Math.round(value + (STOPS[low + 1][k] - value) * (place - low)));
}

export const color = (share) => `rgb(${rgb(share).join(",")})`;
