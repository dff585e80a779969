// Units for axes and tooltips, as kernels/base/units writes them.

function scaled(value, units, factor, digits) {
  let index = 0;
  let rest = Math.abs(value);
  while (rest >= factor && index + 1 < units.length) {
    rest /= factor;
    ++index;
  }
  const places = rest === 0 || Number.isInteger(rest) && digits === 0 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(rest)));
  return `${value < 0 ? '−' : ''}${rest.toFixed(Math.min(places, digits))}${units[index]}`;
}

export const ns = (value) => scaled(value, [' ns', ' us', ' ms', ' s'], 1000, 3);
export const bytes = (value) => scaled(value, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024, 3);
export const count = (value) => scaled(value, ['', 'k', 'M', 'G'], 1000, 3);
export const percent = (ratio) => `${(100 * ratio).toFixed(1)} %`;
const trimmed = (text) => text.replace(/(\.\d*?)0+(?=\D|$)/, '$1').replace(/\.(?=\D|$)/, '');
const orZero = (format) => (value) => (value === 0 ? '0' : trimmed(format(value)));
export const axisNs = orZero(ns);
export const axisBytes = orZero(bytes);
export const axisCount = orZero(count);

/** Distance of axis marks that are round in powers of 1024, for about six of them in `range` bytes. */
export function byteInterval(range) {
  const rough = Math.max(1, range / 6);
  const unit = 1024 ** Math.floor(Math.log(rough) / Math.log(1024));
  return unit * [1, 2, 4, 5, 8, 10, 16, 20, 25, 50, 100, 128, 200, 256, 500, 512, 1024].find((n) => n * unit >= rough);
}
