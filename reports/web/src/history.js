// Trial history: time or throughput in order, what was kept as a line, and a strip for trials without a time.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {choice, readData, tip} from './dom.js';
import {axisLabels, count, logLabels, ns} from './format.js';

const phases = ['contract', 'fit', 'scale', 'profile', 'retune', 'validate'];
const star = 'path://M5,0 L6.5,3.4 L10,3.8 L7.4,6.2 L8.1,10 L5,8 L1.9,10 L2.6,6.2 L0,3.8 L3.5,3.4 Z';
const shapes = ['roundRect', 'rect', 'diamond', 'triangle', 'circle', star];
const phaseColor = (c, phase) =>
  ({contract: c.black, fit: c.blue, scale: c.orange, profile: c.pink, retune: c.green, validate: c.red})[phase] ?? c.soft;
const statuses = ['pruned', 'invalid', 'oom', 'wrong', 'failed', 'crashed', 'hung', 'interrupted', 'running'];

let unit = 'time';

const valueOf = (trial) => (unit === 'time' ? trial.step : trial.tokens);

// Throughput moves with the inverse of time: the interval's ends trade places.
function intervalOf(trial) {
  if (trial.low === null || trial.high === null || !trial.low || !trial.high) {
    return null;
  }
  return unit === 'time' ? [trial.low, trial.high] : [trial.tokens * trial.step / trial.high, trial.tokens * trial.step / trial.low];
}

// What the search held on to: a faster trial within the noise is not kept. Without decisions, the fastest so far.
function heldSoFar(trials, hasDecisions) {
  let held = null;
  return trials.map((trial) => {
    const value = valueOf(trial);
    const isBetter = held === null || (unit === 'time' ? value < held : value > held);
    if (trial.status === 'ok' && value !== null && !trial.reference && (hasDecisions ? trial.kept : isBetter)) {
      held = value;
    }
    return [String(trial.n), held];
  });
}

function describe(trial) {
  const interval = intervalOf(trial);
  return tip(`Trial ${trial.n}: ${trial.status}`, [
    trial.label,
    `phase ${trial.phase}${trial.reference ? ', reference run on one rank' : ''}${trial.winner ? ', winner' : ''}`,
    trial.step !== null ? `step ${ns(trial.step)}` : '',
    interval && unit === 'time' ? `interval ${ns(interval[0])} to ${ns(interval[1])}` : '',
    trial.tokens !== null ? `${count(trial.tokens)} tokens/s` : '',
    trial.reason,
  ]);
}

// A vertical bar with caps; `data` is [x, low, high].
function errorBar(c) {
  return (params, api) => {
    const low = api.coord([api.value(0), api.value(1)]);
    const high = api.coord([api.value(0), api.value(2)]);
    const style = {stroke: c.soft, lineWidth: 1.2, fill: 'none'};
    const line = (x1, y1, x2, y2) => ({type: 'line', shape: {x1, y1, x2, y2}, style});
    return {type: 'group', children: [line(low[0], low[1], high[0], high[1]),
      line(low[0] - 4, low[1], low[0] + 4, low[1]), line(high[0] - 4, high[1], high[0] + 4, high[1])]};
  };
}

function option({trials, hasDecisions}, c) {
  const timed = trials.filter((t) => t.status === 'ok' && !t.reference && valueOf(t) !== null);
  const untimed = trials.filter((t) => t.status !== 'ok');
  const rows = statuses.filter((s) => untimed.some((t) => t.status === s));
  const categories = trials.map((t) => String(t.n));
  const stripHeight = 22 * Math.max(1, rows.length);
  const values = timed.map(valueOf);
  const isWide = values.length > 1 && Math.max(...values) > 12 * Math.min(...values);
  const kind = unit === 'time' ? 'ns' : 'count';
  const ends = timed.flatMap((t) => [valueOf(t), ...(intervalOf(t) ?? [])]);
  const labels = isWide ? logLabels(kind) : axisLabels(kind, Math.min(...ends), Math.max(...ends));
  const left = isNarrow() ? 64 : 84;
  const top = isNarrow() ? 84 : 62;
  const points = phases.map((phase, index) => ({
    type: 'scatter', name: phase, symbol: shapes[index], symbolSize: 11, z: 4,
    itemStyle: {color: phaseColor(c, phase), borderColor: c.page, borderWidth: 1},
    data: timed.filter((t) => t.phase === phase).map((t) => ({
      value: [String(t.n), valueOf(t)], trial: t, symbolSize: t.winner ? 18 : 11,
      label: {show: t.winner, formatter: 'winner', position: unit === 'time' ? 'top' : 'bottom', color: c.text, fontWeight: 600},
    })),
  })).filter((series) => series.data.length > 0);
  const line = {type: 'line', name: 'kept so far', step: 'end', symbol: 'none', data: heldSoFar(trials, hasDecisions), z: 2, connectNulls: false,
    lineStyle: {color: c.text, width: 1.6}, itemStyle: {color: c.text}};
  const bars = {type: 'custom', name: 'interval', renderItem: errorBar(c), z: 3, silent: true, encode: {x: 0, y: [1, 2]},
    data: timed.map((t) => [t, intervalOf(t)]).filter(([, i]) => i).map(([t, i]) => [String(t.n), ...i])};
  const failed = {type: 'scatter', name: 'without a time', xAxisIndex: 1, yAxisIndex: 1, symbolSize: 11,
    symbol: 'path://M0,1 L1,0 L5,4 L9,0 L10,1 L6,5 L10,9 L9,10 L5,6 L1,10 L0,9 L4,5 Z',
    data: untimed.map((t) => ({value: [String(t.n), t.status], trial: t, itemStyle: {color: phaseColor(c, t.phase)}}))};
  return {
    ...common(c),
    legend: {...common(c).legend, data: [...points.map((p) => p.name), 'kept so far']},
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => (p.data?.trial ? describe(p.data.trial) : '')},
    grid: [{left, right: 28, top, bottom: stripHeight + 56}, {left, right: 28, bottom: 44, height: stripHeight}],
    xAxis: [axis(c, {type: 'category', data: categories, axisLabel: {show: false}, axisTick: {show: false}}),
      axis(c, {type: 'category', data: categories, gridIndex: 1, name: 'trial', nameLocation: 'middle', nameGap: 26})],
    yAxis: [axis(c, {type: isWide ? 'log' : 'value', name: `${unit === 'time' ? 'step time' : 'tokens/s'}${isWide ? ' (log)' : ''}`, scale: true,
      nameGap: 12, nameTextStyle: {align: 'right'},
      axisLabel: {formatter: labels}}),
    axis(c, {type: 'category', data: rows, gridIndex: 1, axisTick: {show: false}, splitLine: {show: true, lineStyle: {color: c.grid}}})],
    series: [line, bars, ...points, failed],
  };
}

export function drawHistory() {
  const data = readData('history');
  if (data) {
    draw('history', option(data, colors()), forPrint() ? 340 : 420);
  }
}

export function setUpHistory() {
  choice('history', (value) => {
    unit = value;
    drawHistory();
  });
}
