// Two trials side by side: their figures, the knobs that differ, and where their steps go.
import {readData} from './dom.js';
import {bytes, count, ns, percent} from './format.js';
import {choose, chosen} from './state.js';
import {trialData} from './trials.js';

function cell(tag, text, className) {
  const made = document.createElement(tag);
  made.textContent = text;
  if (className) {
    made.className = className;
  }
  return made;
}

function tableOf(caption, heads, rows) {
  const table = document.createElement('table');
  table.className = 'compact';
  table.append(cell('caption', caption));
  const head = table.createTHead().insertRow();
  heads.forEach((text, i) => head.append(cell('th', text, i > 0 ? 'num' : '')));
  const body = table.createTBody();
  for (const row of rows) {
    const made = body.insertRow();
    row.forEach((text, i) => made.append(cell('td', text, i > 0 ? 'num' : '')));
  }
  const box = document.createElement('div');
  box.className = 'scroll';
  box.append(table);
  return box;
}

const signed = (ratio) => (Number.isFinite(ratio) ? `${ratio < 0 ? '−' : '+'}${percent(Math.abs(ratio))}` : '–');

// Times whose intervals overlap are not told apart by these runs.
function noiseOf(before, after) {
  if (!before.low || !before.high || !after.low || !after.high) {
    return 'One of them has no interval, so that nobody knows whether the noise explains the difference.';
  }
  return before.low > after.high || after.low > before.high ? 'Their intervals lie apart: the difference is beyond the noise of a run.'
    : 'Their intervals overlap: the noise of a run may explain the difference.';
}

function partsOf(before, after) {
  const data = readData('budget');
  const [a, b] = [before, after].map((trial) => data?.trials.find((t) => t.label === `#${trial.n}`));
  if (!a || !b) {
    return null;
  }
  const rows = data.parts.map((part, i) => [part, ns(a.parts[i]), ns(b.parts[i]), `${b.parts[i] < a.parts[i] ? '−' : '+'}${ns(Math.abs(b.parts[i] - a.parts[i]))}`])
    .filter((row, i) => a.parts[i] > 0 || b.parts[i] > 0);
  return tableOf('Where their traced steps go', ['part', `#${before.n}`, `#${after.n}`, 'difference'], rows);
}

function show(data, result, before, after) {
  const figure = (name, key, text) => [name, ...[before, after].map((t) => (t[key] === null ? '–' : text(t[key]))),
    before[key] && after[key] ? signed(after[key] / before[key] - 1) : '–'];
  const figures = [['status', before.status, after.status, ''], ['wall', before.wall || '–', after.wall || '–', ''],
    figure('step time', 'step', ns), figure('tokens/s', 'tokens', count), figure('peak memory', 'peak', bytes),
    ['runs', before.runs || '–', after.runs || '–', '']];
  const knobs = data.knobs.map((knob) => [knob.name, knob.values[before.position], knob.values[after.position]])
    .filter(([, a, b]) => a !== b).map(([name, a, b]) => [name, a || '–', b || '–']);
  const left = document.createElement('div');
  const right = document.createElement('div');
  const both = document.createElement('div');
  both.className = 'columns';
  left.append(tableOf('Figures', ['', `#${before.n}`, `#${after.n}`, 'difference'], figures));
  if (before.step && after.step) {
    left.append(cell('p', noiseOf(before, after), 'note'));
  }
  right.append(knobs.length > 0 ? tableOf(`Knobs that differ: ${knobs.length}`, ['knob', `#${before.n}`, `#${after.n}`], knobs)
    : cell('p', 'No knob differs.'));
  both.append(left, right);
  result.replaceChildren(both);
  const parts = partsOf(before, after);
  if (parts) {
    left.append(parts);
  }
}

export function setUpCompare() {
  const data = trialData();
  const result = document.getElementById('compare-result');
  if (!data || !result) {
    return;
  }
  const [before, after] = ['before', 'after'].map((name) => document.querySelector(`input[data-compare=${name}]`));
  const update = () => {
    const [a, b] = [before, after].map((input) => data.trials.find((trial) => trial.n === Number(input.value)));
    if (a && b) {
      show(data, result, a, b);
    } else {
      result.replaceChildren(cell('p', `There is no trial ${(a ? after : before).value}.`));
    }
  };
  const remember = () => {
    choose('before', before.value);
    choose('after', after.value);
    update();
  };
  for (const input of [before, after]) {
    input.addEventListener('input', remember);
    if (/^\d+$/.test(chosen(input.dataset.compare) ?? '')) {
      input.value = chosen(input.dataset.compare);
    }
  }
  document.getElementById('compare-swap').addEventListener('click', () => {
    [before.value, after.value] = [after.value, before.value];
    remember();
  });
  update();
}
