// The table of all trials: filter by status, phase, wall and text; sort by any column. The most telling trials are rows of
// the page already; those of the others are made of the trials' data when they are to be seen.
import {bytes, count, ns} from './format.js';
import {choose, chooseSoon, chosen} from './state.js';
import {trialData} from './trials.js';

const mostRows = 200;  // at once, and more with every press of the button
const words = new Intl.Collator('en', {numeric: true});
const plain = (text) => text.replace(/[^A-Za-z0-9_]/g, '-');

function element(tag, className, text) {
  const made = document.createElement(tag);
  if (className) {
    made.className = className;
  }
  made.textContent = text ?? '';
  return made;
}

function badge(family, value) {
  return value ? element('span', `badge ${family} ${family}-${plain(value)}`, value) : '–';
}

function numberCell(value, text) {
  const cell = element('td', 'num', value === null ? '–' : text(value));
  if (value !== null) {
    cell.dataset.value = String(value);
  }
  return cell;
}

class TrialTable {
  constructor(table, data) {
    this.data = data;
    this.body = table.tBodies[0];
    this.heads = [...table.tHead.rows[0].cells];
    this.made = new Map([...this.body.rows].map((row) => [Number(row.id.slice('trial-'.length)), row]));
    // Those of the page first, then the others, each in the order of the trials.
    this.order = [...data.trials].sort((a, b) => Number(this.made.has(b.n)) - Number(this.made.has(a.n)) || a.n - b.n);
    this.texts = new Map();
    this.inputs = [...document.querySelectorAll('[data-filter]')];
    this.output = document.getElementById('trial-count');
    this.more = document.getElementById('trial-more');
    this.most = mostRows;
    this.pinned = null;
    this.base = data.trials.find((trial) => trial.n === data.comparedWith);
  }

  othersOf(trial) {
    return this.data.knobs.filter((knob) => !knob.label && (!this.base || this.base === trial ||
      knob.values[this.base.position] !== knob.values[trial.position])).map((knob) => [knob.name, knob.values[trial.position] || '–']);
  }

  textOf(trial) {
    if (!this.texts.has(trial.n)) {
      const row = this.made.get(trial.n);
      const text = row ? row.textContent : [trial.n, trial.status, trial.phase, trial.wall, trial.title, trial.why,
        ...this.data.knobs.map((knob) => `${knob.name} ${knob.values[trial.position]}`), trial.spec].join(' ');
      this.texts.set(trial.n, text.toLowerCase());
    }
    return this.texts.get(trial.n);
  }

  rowOf(trial) {
    if (!this.made.has(trial.n)) {
      const row = document.createElement('tr');
      row.id = `trial-${trial.n}`;
      row.append(...this.heads.map((head) => this.cellOf(trial, head)));
      this.made.set(trial.n, row);
    }
    return this.made.get(trial.n);
  }

  cellOf(trial, head) {
    const cell = document.createElement('td');
    switch (head.dataset.key) {
      case 'n': return numberCell(trial.n, String);
      case 'step': return numberCell(trial.step, ns);
      case 'tokens': return numberCell(trial.tokens, count);
      case 'peak': return numberCell(trial.peak, bytes);
      case 'runs': return element('td', 'num', trial.runs || '–');
      case 'knob': return element('td', 'num', this.valueOf(trial, head) || '–');
      case 'status': case 'phase': case 'wall':
        cell.append(badge(head.dataset.key, trial[head.dataset.key]));
        return cell;
      case 'why':
        cell.className = 'why';
        if (trial.title) {
          cell.append(element('b', '', trial.title), ' ');
        }
        cell.append(trial.why, trial.cleared ? '; cleared by the perturbed reference' : '');
        return cell;
      case 'knobs':
        cell.className = 'knobs';
        this.othersOf(trial).forEach(([name, value], i) => cell.append(i > 0 ? ', ' : '', `${name} `, element('b', '', value)));
        return cell;
      default:
        cell.className = 'spec';
        cell.append(element('code', '', trial.spec));
        return cell;
    }
  }

  // What a column is sorted by; null or empty: not known.
  valueOf(trial, head) {
    const {key} = head.dataset;
    if (key === 'knob') {
      return this.data.knobs.find((knob) => knob.name === head.dataset.knob)?.values[trial.position];
    }
    return key === 'knobs' ? this.othersOf(trial).flat().join(' ') : key === 'why' ? trial.title + trial.why : trial[key];
  }

  wanted() {
    return Object.fromEntries(this.inputs.map((input) => [input.dataset.filter, input.value.trim().toLowerCase()]));
  }

  show() {
    const wanted = this.wanted();
    // On paper, too, then stands what was asked for (style.css).
    this.body.closest('section').classList.toggle('filtered', Object.values(wanted).some(Boolean));
    const fits = this.order.filter((trial) => ['status', 'phase', 'wall'].every((key) => !wanted[key] || trial[key] === wanted[key]) &&
      (!wanted.text || this.textOf(trial).includes(wanted.text)));
    const shown = fits.slice(0, this.most);
    if (this.pinned && !shown.includes(this.pinned)) {
      shown.unshift(this.pinned);
    }
    this.body.replaceChildren(...shown.map((trial) => this.rowOf(trial)));
    this.tell(fits.length, shown.length);
  }

  tell(num, shown) {
    this.output.textContent = `${num} of ${this.data.num}${shown < num ? `, ${shown} shown` : ''}`;
    this.more.hidden = shown >= num;
    this.more.textContent = `Show ${Math.min(mostRows, num - shown)} more`;
  }

  sort(head, isAscending) {
    for (const other of this.heads) {
      other.removeAttribute('aria-sort');
    }
    head.setAttribute('aria-sort', isAscending ? 'ascending' : 'descending');
    const sign = isAscending ? 1 : -1;
    const keyed = this.order.map((trial) => [this.valueOf(trial, head), trial]);
    // Numbers by value, texts by alphabet (numbers in them by size); what is unknown comes last either way.
    keyed.sort(([a], [b]) => {
      const [noA, noB] = [a, b].map((value) => value === null || value === undefined || value === '');
      if (noA || noB) {
        return Number(noA) - Number(noB);
      }
      return sign * (typeof a === 'number' ? a - b : words.compare(a, b));
    });
    this.order = keyed.map(([, trial]) => trial);
    this.show();
  }

  // A link to a trial shows it, whatever the filter hides.
  reveal(n) {
    const trial = this.data.trials.find((one) => one.n === n);
    if (!trial) {
      return;
    }
    if (!document.getElementById(`trial-${n}`)) {
      this.pinned = trial;
      this.show();
    }
    const row = document.getElementById(`trial-${n}`);
    row.classList.add('pointed');
    row.scrollIntoView({block: 'center'});
  }
}

let table = null;

/** Shows the row of a trial that a link named: "trial-12". */
export function showTrial(place) {
  document.querySelector('tr.pointed')?.classList.remove('pointed');
  const asked = /^trial-(\d+)$/.exec(place);
  if (asked) {
    table?.reveal(Number(asked[1]));
  }
}

export function setUpTable() {
  const place = document.getElementById('trial-table');
  const data = trialData();
  if (!place || !data) {
    return;
  }
  table = new TrialTable(place, data);
  for (const input of table.inputs) {
    const key = input.dataset.filter;
    input.addEventListener('input', () => {
      (key === 'text' ? chooseSoon : choose)(key, input.value.trim());
      table.most = mostRows;
      table.show();
    });
    const asked = chosen(key);
    if (asked && (key === 'text' || [...input.options].some((option) => option.value === asked))) {
      input.value = asked;
    }
  }
  table.more.addEventListener('click', () => {
    table.most += mostRows;
    table.show();
  });
  const nameOf = (head) => head.dataset.knob ?? head.dataset.key;
  for (const head of table.heads) {
    const button = document.createElement('button');
    button.type = 'button';
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener('click', () => {
      const isAscending = head.getAttribute('aria-sort') !== 'ascending';
      choose('sort', `${isAscending ? '' : '-'}${nameOf(head)}`);
      table.sort(head, isAscending);
    });
  }
  const sorted = chosen('sort') ?? '';
  const head = table.heads.find((one) => nameOf(one) === sorted.replace(/^-/, ''));
  if (head) {
    table.sort(head, !sorted.startsWith('-'));
  } else if (table.inputs.some((input) => input.value)) {
    table.show();
  } else {
    table.tell(data.num, table.body.rows.length);
  }
}
