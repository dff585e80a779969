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
export const axisNs = (value) => trimmed(ns(value));
export const axisBytes = (value) => trimmed(bytes(value));
export const axisCount = (value) => trimmed(count(value));
