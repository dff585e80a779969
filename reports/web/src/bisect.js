// Hunts: how likely each commit is, and every measurement by commit or in the order they were made.
import {axis, colors, common, draw, isNarrow} from './charts.js';
import {choice, readData, tip} from './dom.js';
import {axisLabels, byteInterval} from './format.js';

const orders = new Map();
const shapes = ['circle', 'diamond', 'triangle', 'rect', 'roundRect', 'pin'];
const cross = 'path://M0,1 L1,0 L5,4 L9,0 L10,1 L6,5 L10,9 L9,10 L5,6 L1,10 L0,9 L4,5 Z';

const share = (p) => (p > 0.999 && p < 1 ? '> 99.9 %' : `${(100 * p).toFixed(1)} %`);
const cut = (text, most) => (text.length > most ? `${text.slice(0, most)}…` : text);

// Five digits, as the tables have them: a change of a tenth of a percent must show.
function exact(value, unit) {
  const scale = {ns: [1000, [' ns', ' us', ' ms', ' s']], bytes: [1024, [' B', ' KiB', ' MiB', ' GiB', ' TiB']]}[unit];
  if (!scale) {
    return `${Number(value.toPrecision(5))}${unit ? ` ${unit}` : ''}`;
  }
  let index = 0;
  let rest = value;
  while (Math.abs(rest) >= scale[0] && index + 1 < scale[1].length) {
    rest /= scale[0];
    ++index;
  }
  return Number(rest.toPrecision(5)) + scale[1][index];
}

function drawPosterior(hunt, c) {
  if (!hunt.bars.length) {
    return;
  }
  const culprits = new Set(hunt.culprits.map((culprit) => culprit.position));
  const most = isNarrow() ? 16 : 60;
  const rows = hunt.bars.map((bar) => {
    const isGap = bar.to !== undefined;
    const isEnd = bar.from === 0 ? ' (good end)' : bar.from === hunt.last ? ' (bad end)' : '';
    const name = [bar.id, bar.subject].filter(Boolean).join(' ') || `position ${bar.from}`;
    return {
      isGap, p: bar.p, isCulprit: culprits.has(bar.from) && !isGap,
      label: isGap ? `⋮ ${bar.to - bar.from + 1} commits` : cut(name, most),
      tip: () => tip(isGap ? `Positions ${bar.from} to ${bar.to}` : `${name}`,
        [isGap ? 'together' : `position ${bar.from}${isEnd}`, isGap ? '' : bar.date, share(bar.p)]),
    };
  });
  if (hunt.noChange !== null) {
    rows.push({isGap: true, p: hunt.noChange, label: 'no change at all', tip: () => tip('No change at all', [share(hunt.noChange)])});
  }
  draw(`bisect-posterior-${hunt.n}`, {
    ...common(c),
    legend: {show: false},
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => rows[p.dataIndex].tip()},
    grid: {left: 12, right: 70, top: 8, bottom: 30, containLabel: true},
    xAxis: axis(c, {type: 'value', min: 0, max: 1, axisLabel: {formatter: (value) => `${Math.round(100 * value)} %`}}),
    yAxis: axis(c, {type: 'category', inverse: true, data: rows.map((_, i) => String(i)), axisTick: {show: false},
      axisLabel: {interval: 0, hideOverlap: false, formatter: (i) => rows[Number(i)].label,
        color: (i) => (rows[Number(i)]?.isGap ? c.soft : c.text)}}),
    series: [{
      type: 'bar', barMaxWidth: 16, barMinHeight: 1,
      label: {show: true, position: 'right', color: c.text, formatter: (p) => (rows[p.dataIndex].p >= 0.0005 ? share(rows[p.dataIndex].p) : '')},
      data: rows.map((row) => ({
        value: row.p,
        itemStyle: {color: row.isCulprit ? c.red : row.isGap ? c.soft : c.blue,
          decal: row.isCulprit ? {symbol: 'rect', dashArrayX: [1, 0], dashArrayY: [2, 5], rotation: -Math.PI / 4, color: 'rgba(0,0,0,0.28)'} : undefined},
      })),
    }],
  }, 46 + 24 * rows.length);
}

function drawRuns(hunt, c) {
  const byTime = orders.get(hunt.n) === 'time' || !hunt.hasCommits;
  const x = (position, ordinal) => (byTime ? ordinal : position);
  const known = [...hunt.points.map((p) => p[1]), ...hunt.levels.map((level) => level.value)];
  const values = known.length ? known : [0, 1];  // every run failed: only the strip has marks
  let low = Math.min(...values);
  let high = Math.max(...values);
  const pad = 0.08 * (high - low) || 0.02 * Math.abs(high) || 1;
  low -= pad;
  high += pad;
  const interval = hunt.unit === 'bytes' && low >= 0 ? byteInterval(high - low) : undefined;
  if (interval) {
    low = Math.floor(low / interval) * interval;
    high = Math.ceil(high / interval) * interval;
  }
  const label = (position) => hunt.commits[position] ?? '';
  const place = (position, ordinal) => (hunt.hasCommits ? `position ${position}, run ${ordinal}` : `run ${ordinal}`);
  const statuses = [...new Set(hunt.failures.map((f) => f[2]))];
  const strip = statuses.length ? 22 * statuses.length : 0;
  const left = isNarrow() ? 78 : 104;
  const palette = [c.blue, c.orange, c.green, c.pink, c.sky, c.black];
  const series = hunt.purposes.map((purpose, index) => ({
    type: 'scatter', name: purpose || 'run', symbol: shapes[index], symbolSize: 9, z: 3,
    itemStyle: {color: palette[index], borderColor: c.page, borderWidth: 1},
    data: hunt.points.filter((p) => p[3] === index).map((p) => ({value: [x(p[0], p[2]), p[1]], run: p})),
  }));
  // Levels stand over the commits they hold for; in the order of time there are no such places.
  const half = (position, isStart) => position + (isStart ? (position === 0 ? 0 : -0.5) : (position === hunt.last ? 0 : 0.5));
  const levels = {
    type: 'line', name: 'level', symbol: 'none', silent: true, z: 2, lineStyle: {color: c.text, width: 1.8}, itemStyle: {color: c.text},
    data: byTime ? [] : hunt.levels.flatMap((level) => [[half(level.from, true), level.value], [half(level.to, false), level.value], [null, null]]),
    markLine: byTime ? {silent: true, symbol: 'none', lineStyle: {color: c.text, type: 'dashed', width: 1.2}, label: {show: false},
      data: hunt.levels.map((level) => ({yAxis: level.value}))}
      : {silent: true, symbol: 'none', lineStyle: {color: c.red, type: 'dashed', width: 1.2},
        label: {color: c.text, formatter: (p) => p.name, position: 'insideEndTop', rotate: 0, align: 'right', distance: [-2, 4]},
        data: hunt.culprits.map((culprit) => ({xAxis: culprit.position - 0.5, name: `${culprit.id || 'culprit'} ▸`}))},
  };
  const failed = {type: 'scatter', xAxisIndex: 1, yAxisIndex: 1, symbol: cross, symbolSize: 10, itemStyle: {color: c.red},
    data: hunt.failures.map((f) => ({value: [x(f[0], f[1]), f[2]], failure: f}))};
  const ordinals = [...hunt.points.map((p) => p[2]), ...hunt.failures.map((f) => f[1])];
  const range = byTime ? {min: Math.min(...ordinals), max: Math.max(...ordinals)} : {min: 0, max: Math.max(1, hunt.last)};
  const name = byTime ? 'run, in the order they were made' : 'position of the commit';
  const xAxis = {type: 'value', ...range, minInterval: 1, splitLine: {show: false}};
  const grids = [{left, right: 28, top: isNarrow() ? 58 : 36, bottom: strip + 52}];
  const xAxes = [axis(c, {...xAxis, axisLabel: {show: !strip}, ...(strip ? {} : {name, nameLocation: 'middle', nameGap: 26})})];
  const yAxes = [axis(c, {type: 'value', min: low, max: high, interval, name: hunt.metric.length < 24 ? hunt.metric : '',
    nameTextStyle: {align: 'left', padding: [0, 0, 0, -left + 14]}, nameGap: 12,
    axisLabel: {showMinLabel: false, showMaxLabel: false, formatter: axisLabels(hunt.unit, low, high)}})];
  yAxes[0].axisLabel.show = known.length > 0;
  if (strip) {
    grids.push({left, right: 28, bottom: 44, height: strip});
    xAxes.push(axis(c, {...xAxis, gridIndex: 1, name, nameLocation: 'middle', nameGap: 26}));
    yAxes.push(axis(c, {type: 'category', gridIndex: 1, data: statuses, axisTick: {show: false}, splitLine: {show: true, lineStyle: {color: c.grid}},
      axisLabel: {interval: 0}}));
    series.push(failed);
  }
  draw(`bisect-runs-${hunt.n}`, {
    ...common(c),
    legend: {...common(c).legend, data: [...series.filter((s) => s !== failed).map((s) => s.name), ...(hunt.levels.length ? [{name: 'level', icon: 'path://M0,4 L14,4 L14,6 L0,6 Z'}] : [])], ...(isNarrow() ? {} : {left: 'center'})},
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => {
      const {run, failure} = p.data ?? {};
      if (run) {
        return tip(exact(run[1], hunt.unit), [label(run[0]), place(run[0], run[2]), hunt.purposes[run[3]]]);
      }
      return failure ? tip(failure[2], [label(failure[0]), place(failure[0], failure[1]), failure[3]]) : '';
    }},
    grid: grids, xAxis: xAxes, yAxis: yAxes, series: [levels, ...series],
  }, 340 + strip);
}

export function drawBisect() {
  const c = colors();
  for (const hunt of readData('bisect') ?? []) {
    drawPosterior(hunt, c);
    drawRuns(hunt, c);
  }
}

export function setUpBisect() {
  for (const hunt of readData('bisect') ?? []) {
    choice(`bisect-${hunt.n}`, (value) => {
      orders.set(hunt.n, value);
      drawRuns(hunt, colors());
    });
  }
}
