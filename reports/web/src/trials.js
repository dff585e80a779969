// All trials of the sweep, unpacked once from the columns that the program wrote (trial_columns.h).
import {readData} from './dom.js';

/** Of more marks than this in one chart, one is drawn of those that lie on top of each other. */
export const mostMarks = 600;

const numbers = ({unit, at}) => at.map((value) => (value > 0 ? value * unit : null));
const names = ({names: known, at}) => Array.from(at, (digit) => known[typeof digit === 'string' ? parseInt(digit, 36) : digit]);

let cache;

/** {num, trials, knobs: [{name, label, values by position}], comparedWith}, or null without a sweep. */
export function trialData() {
  if (cache !== undefined) {
    return cache;
  }
  const data = readData('trials');
  if (!data) {
    cache = null;
    return cache;
  }
  const {flags, spec, ...columns} = data.columns;
  const unpacked = Object.entries(columns).map(([key, column]) => [key, column.unit ? numbers(column) : names(column)]);
  const knobs = data.knobs.map((knob) => ({...knob, values: names(knob.values)}));
  const digits = spec.length / flags.length;
  const trials = Array.from(flags, (digit, position) => {
    const flag = parseInt(digit, 36);
    const trial = {position, kept: (flag & 1) > 0, reference: (flag & 2) > 0, winner: (flag & 4) > 0, start: (flag & 8) > 0,
      cleared: (flag & 16) > 0, spec: spec.slice(digits * position, digits * (position + 1)).trim()};
    for (const [key, values] of unpacked) {
      trial[key] = values[position];
    }
    return trial;
  });
  cache = {num: data.num, trials, knobs, comparedWith: data.comparedWith};
  return cache;
}

/** "dp 4 · ep 2": the sizes of its layout that differ between trials. */
export const layoutOf = (data, trial) =>
  data.knobs.filter((knob) => knob.label).map((knob) => `${knob.label} ${knob.values[trial.position]}`).join(' · ');

/**
 * At most about `most` marks: `place(mark)` gives [x, y] from 0 to 1; of marks in the same cell of a grid and with the
 * same `kind(mark)` the first stays, and all with `stays(mark)`.
 */
export function thinned(marks, most, place, kind, stays) {
  if (marks.length <= most) {
    return marks;
  }
  const kept = marks.filter(stays);
  const others = marks.filter((mark) => !stays(mark)).map((mark) => [mark, kind(mark), ...place(mark)]);
  for (let cells = 200; ; cells = Math.floor(0.8 * cells)) {
    const found = new Map();
    for (const [mark, name, x, y] of others) {
      const key = `${name}|${Math.floor(x * cells)}|${Math.floor(0.4 * y * cells)}`;
      if (!found.has(key)) {
        found.set(key, mark);
      }
    }
    if (kept.length + found.size <= most || cells < 8) {
      return [...kept, ...found.values()];
    }
  }
}

/** Where a value lies between two others, from 0 to 1. */
export function share(value, low, high, isLog) {
  const f = isLog ? Math.log : (x) => x;
  return high > low ? (f(value) - f(low)) / (f(high) - f(low)) : 0;
}
