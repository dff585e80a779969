// Trial history: time or throughput in order, what was kept as a line, and a strip for trials without a time.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {choice, tip} from './dom.js';
import {axisLabels, bytes, count, logLabels, ns} from './format.js';
import {chooseSoon, chosen} from './state.js';
import {layoutOf, mostMarks, share, thinned, trialData} from './trials.js';

const phases = ['contract', 'fit', 'scale', 'profile', 'retune', 'validate'];
export const star = 'path://M5,0 L6.5,3.4 L10,3.8 L7.4,6.2 L8.1,10 L5,8 L1.9,10 L2.6,6.2 L0,3.8 L3.5,3.4 Z';
const cross = 'path://M0,1 L1,0 L5,4 L9,0 L10,1 L6,5 L10,9 L9,10 L5,6 L1,10 L0,9 L4,5 Z';
const shapes = ['roundRect', 'rect', 'diamond', 'triangle', 'circle', star];
const phaseColor = (c, phase) =>
  ({contract: c.black, fit: c.blue, scale: c.orange, profile: c.pink, retune: c.green, validate: c.red})[phase] ?? c.soft;
const statuses = ['pruned', 'invalid', 'oom', 'wrong', 'failed', 'crashed', 'hung', 'interrupted', 'running'];
const mostBars = 200;  // with more, they hide each other
const fewestToZoom = 200;

let unit = 'time';
let view = null;  // the first and the last trial that are in view; null: all

const valueOf = (trial) => (unit === 'time' ? trial.step : trial.tokens);

// Throughput moves with the inverse of time: the interval's ends trade places.
function intervalOf(trial) {
  if (!trial.low || !trial.high) {
    return null;
  }
  return unit === 'time' ? [trial.low, trial.high] : [trial.tokens * trial.step / trial.high, trial.tokens * trial.step / trial.low];
}

// What the search held on to: a faster trial within the noise is not kept. Without decisions, the fastest so far. One
// point where it changes, and one at either end of the view.
function heldSoFar(trials, hasDecisions, from, to) {
  let held = null;
  const line = [];
  for (const trial of trials) {
    const value = valueOf(trial);
    const isBetter = held === null || (unit === 'time' ? value < held : value > held);
    if (trial.n > to) {
      break;
    }
    if (trial.status === 'ok' && value !== null && !trial.reference && (hasDecisions ? trial.kept : isBetter)) {
      held = value;
      if (trial.n < from) {
        line.length = 0;
      }
      line.push([Math.max(from, trial.n), held]);
    }
  }
  return line.length > 0 ? [...line, [to, held]] : [];
}

export function describeTrial(data, trial) {
  const {low, high} = trial;
  return tip(`Trial ${trial.n}: ${trial.status}`, [
    trial.title || layoutOf(data, trial),
    `phase ${trial.phase}${trial.reference ? ', reference run on one rank' : ''}${trial.winner ? ', winner' : ''}`,
    trial.step !== null ? `step ${ns(trial.step)}${low && high ? `, interval ${ns(low)} to ${ns(high)}` : ''}` : '',
    trial.tokens !== null ? `${count(trial.tokens)} tokens/s` : '',
    trial.peak !== null ? `peak ${bytes(trial.peak)}` : '',
    trial.why,
    trial.cleared ? 'cleared by the perturbed reference' : '',
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

// What depends on the part that is in view: series and the axis of values.
function inView(data, c, rows, from, to) {
  const seen = data.trials.filter((t) => t.n >= from && t.n <= to);
  const timed = seen.filter((t) => t.status === 'ok' && !t.reference && valueOf(t) !== null);
  const untimed = seen.filter((t) => t.status !== 'ok');
  const values = timed.map(valueOf);
  const [least, most] = [Math.min(...values), Math.max(...values)];
  const isWide = values.length > 1 && most > 12 * least;
  const kind = unit === 'time' ? 'ns' : 'count';
  const hasBars = timed.length <= mostBars;
  const ends = hasBars ? timed.flatMap((t) => [valueOf(t), ...(intervalOf(t) ?? [])]) : [least, most];
  const drawn = thinned(timed, mostMarks, (t) => [share(t.n, from, to), share(valueOf(t), least, most, isWide)], (t) => t.phase,
    (t) => t.winner || t.kept);
  const size = drawn.length > 200 ? 8 : 11;
  const points = phases.map((phase, index) => ({
    type: 'scatter', name: phase, symbol: shapes[index], symbolSize: size, z: 4,
    itemStyle: {color: phaseColor(c, phase), borderColor: c.page, borderWidth: 1},
    data: drawn.filter((t) => t.phase === phase).map((t) => ({
      value: [t.n, valueOf(t)], trial: t, symbolSize: t.winner ? 18 : size,
      label: {show: t.winner, formatter: 'winner', position: unit === 'time' ? 'top' : 'bottom', color: c.text, fontWeight: 600},
    })),
  })).filter((series) => series.data.length > 0);
  const line = {type: 'line', name: 'kept so far', step: 'end', symbol: 'none', z: 2, lineStyle: {color: c.text, width: 1.6}, itemStyle: {color: c.text},
    data: heldSoFar(data.trials, data.trials.some((t) => t.kept), from, to)};
  const bars = {type: 'custom', name: 'interval', renderItem: errorBar(c), clip: true, z: 3, silent: true, encode: {x: 0, y: [1, 2]},
    data: hasBars ? timed.map((t) => [t, intervalOf(t)]).filter(([, i]) => i).map(([t, i]) => [t.n, ...i]) : []};
  const failed = {type: 'scatter', name: 'without a time', xAxisIndex: 1, yAxisIndex: 1, symbolSize: size, symbol: cross,
    data: thinned(untimed, mostMarks, (t) => [share(t.n, from, to), 0], (t) => t.status, () => false)
      .map((t) => ({value: [t.n, t.status], trial: t, itemStyle: {color: phaseColor(c, t.phase)}}))};
  return {
    legend: {data: [...points.map((p) => p.name), 'kept so far']},
    yAxis: [axis(c, {type: isWide ? 'log' : 'value', name: `${unit === 'time' ? 'step time' : 'tokens/s'}${isWide ? ' (log)' : ''}`, scale: true,
      nameGap: 12, nameTextStyle: {align: 'right'},
      axisLabel: {formatter: isWide ? logLabels(kind) : axisLabels(kind, Math.min(...ends), Math.max(...ends))}}),
    axis(c, {type: 'category', data: rows, gridIndex: 1, axisTick: {show: false}, splitLine: {show: true, lineStyle: {color: c.grid}}})],
    series: [line, bars, ...points, failed],
  };
}

export function drawHistory() {
  const data = trialData();
  if (!data || data.trials.length === 0) {
    return;
  }
  const c = colors();
  const [first, last] = [data.trials[0].n, data.trials[data.trials.length - 1].n];
  const zooms = data.trials.length >= fewestToZoom && !forPrint();
  const [from, to] = (!forPrint() && view) || [first, last];
  const present = new Set(data.trials.map((t) => t.status));
  const rows = statuses.filter((s) => present.has(s));
  const stripHeight = 22 * Math.max(1, rows.length);
  const left = isNarrow() ? 64 : 84;
  const top = isNarrow() ? 84 : 62;
  const under = zooms ? 40 : 0;
  const room = Math.max(1, (to - from) / 60);
  const along = {type: 'value', min: first - 1, max: last + 1, minInterval: 1, splitLine: {show: false}};
  const parts = inView(data, c, rows, from - room, to + room);
  const base = common(c);
  const zoom = {xAxisIndex: [0, 1], filterMode: 'none', startValue: from === first ? first - 1 : from, endValue: to === last ? last + 1 : to};
  const chart = draw('history', {
    ...base, ...parts,
    legend: {...base.legend, ...parts.legend},
    tooltip: {...base.tooltip, trigger: 'item', formatter: (p) => (p.data?.trial ? describeTrial(data, p.data.trial) : '')},
    grid: [{left, right: 28, top, bottom: stripHeight + 56 + under}, {left, right: 28, bottom: 44 + under, height: stripHeight}],
    xAxis: [axis(c, {...along, axisLabel: {show: false}, axisTick: {show: false}}),
      axis(c, {...along, gridIndex: 1, name: 'trial', nameLocation: 'middle', nameGap: 26, axisLabel: {showMinLabel: false, showMaxLabel: false}})],
    dataZoom: !zooms ? [] : [
      {type: 'inside', ...zoom, zoomOnMouseWheel: 'ctrl', moveOnMouseWheel: false, preventDefaultMouseMove: false},
      {type: 'slider', ...zoom, height: 20, bottom: 10, borderColor: c.line, textStyle: {color: c.soft}, showDataShadow: false, brushSelect: true,
        labelFormatter: (value) => `#${Math.round(value)}`, fillerColor: 'rgba(86,180,233,0.22)', moveHandleSize: 5}],
  }, (forPrint() ? 340 : 420) + under);
  let pending = false;
  chart?.on('datazoom', () => {
    if (pending) {
      return;
    }
    pending = true;
    requestAnimationFrame(() => {
      pending = false;
      if (chart.isDisposed()) {
        return;  // drawn anew in the meantime
      }
      const {startValue, endValue} = chart.getOption().dataZoom[0];
      const isAll = startValue <= first && endValue >= last;
      view = isAll ? null : [Math.max(first, Math.floor(startValue)), Math.min(last, Math.ceil(endValue))];
      chooseSoon('trials', isAll ? '' : view.join('-'));
      const {yAxis, series} = inView(data, c, rows, startValue, endValue);
      chart.setOption({yAxis, series}, {replaceMerge: ['series']});
    });
  });
}

export function setUpHistory() {
  const asked = /^(\d+)-(\d+)$/.exec(chosen('trials') ?? '');
  if (asked && Number(asked[2]) > Number(asked[1])) {
    view = [Number(asked[1]), Number(asked[2])];
  }
  choice('history', (value) => {
    unit = value;
    drawHistory();
  });
}
