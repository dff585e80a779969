// Units for axes and tooltips, as kernels/base/units writes them.

const scales = {
  ns: {factor: 1000, names: [' ns', ' us', ' ms', ' s']},
  bytes: {factor: 1024, names: [' B', ' KiB', ' MiB', ' GiB', ' TiB']},
  count: {factor: 1000, names: ['', 'k', 'M', 'G', 'T']},
};

// The index of the name that a value of this size takes, and what one of it is worth.
function scaleOf({factor, names}, value) {
  let index = 0;
  let size = 1;
  while (Math.abs(value) / size >= factor && index + 1 < names.length) {
    size *= factor;
    ++index;
  }
  return {name: names[index], size};
}

// Three digits that count: of what is below one, those behind the zeros.
function scaled(value, scale) {
  const {name, size} = scaleOf(scale, value);
  const rest = Math.abs(value) / size;
  const places = rest === 0 ? 0 : Math.max(0, 2 - Math.floor(Math.log10(rest)));
  return `${value < 0 ? '−' : ''}${rest.toFixed(Math.min(places, 12))}${name}`;
}

export const ns = (value) => scaled(value, scales.ns);
export const bytes = (value) => scaled(value, scales.bytes);
export const count = (value) => scaled(value, scales.count);
export const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;
const trimmed = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');

/**
 * What the marks of an axis from `low` to `high` are called: all in one unit ("ns", "bytes", "s", or another, which is
 * counted), with as many digits as tell neighbours apart.
 */
export function axisLabels(unit, low, high) {
  // Seconds come from commands of the user's own; they read as times do everywhere else.
  const worth = unit === 's' ? 1e9 : 1;
  const scale = unit === 's' ? scales.ns : scales[unit] ?? scales.count;
  const {name, size} = scaleOf(scale, worth * Math.max(Math.abs(low), Math.abs(high)));
  const span = (worth * Math.abs(high - low)) / size;
  // Up to ten marks in the span, each a round number: two digits more than their distance has.
  const places = span > 0 ? Math.min(12, Math.max(0, 2 - Math.floor(Math.log10(span / 10)))) : 3;
  return (value) => {
    const text = trimmed(((worth * Math.abs(value)) / size).toFixed(places));
    return Number(text) === 0 ? '0' : `${value < 0 ? '−' : ''}${text}${name}`;
  };
}
/** The same where every mark has a size of its own: on a logarithmic axis. */
export const logLabels = (unit) => (value) => (value === 0 ? '0' : trimmed(scaled(value, scales[unit] ?? scales.count)));

/** Distance of axis marks that are round in powers of 1024, for about six of them in `range` bytes. */
export function byteInterval(range) {
  const rough = Math.max(1, range / 6);
  const unit = 1024 ** Math.floor(Math.log(rough) / Math.log(1024));
  return unit * [1, 2, 4, 5, 8, 10, 16, 20, 25, 50, 100, 128, 200, 256, 500, 512, 1024].find((n) => n * unit >= rough);
}
