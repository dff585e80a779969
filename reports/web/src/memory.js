// Memory per rank: measured and predicted stacks side by side, against the capacity.
import {axis, colors, common, draw, forPrint, hatch, isNarrow} from './charts.js';
import {list, readData, tip} from './dom.js';
import {axisLabels, byteInterval, bytes, percent} from './format.js';

const palette = (c) => [c.blue, c.sky, c.orange, c.green, c.pink, c.yellow, c.red, c.black];

let shown = null;

function describe(data, trial, rank, isPredicted) {
  const values = isPredicted ? rank.predicted : rank.measured;
  const total = values.reduce((sum, value) => sum + (value ?? 0), 0);
  const unit = data.unit ?? 'rank';
  return tip(`${unit[0].toUpperCase()}${unit.slice(1)} ${rank.rank}, ${isPredicted ? 'predicted' : 'measured'}: ${bytes(total)}`, [
    ...data.groups.map((group, i) => (values[i] ? `${group} ${bytes(values[i])}` : '')).reverse(),
    trial.capacity ? `${percent(total / trial.capacity)} of the capacity` : '',
    !isPredicted && rank.allocation ? `peak set by ${rank.allocation}` : '',
  ]);
}

function option(data, trial, c) {
  const fill = palette(c);
  const series = [];
  // Where nothing was measured, predictions need not look different from anything.
  const isMeasured = trial.ranks.some((rank) => rank.measured.length > 0);
  data.groups.forEach((group, index) => {
    for (const kind of ['measured', 'predicted']) {
      const values = trial.ranks.map((rank) => rank[kind][index]);
      if (values.every((value) => !value)) {
        continue;
      }
      const isPredicted = kind === 'predicted';
      series.push({
        type: 'bar', name: group, stack: kind, barGap: '8%', barCategoryGap: '28%', barMaxWidth: 90, data: values,
        kind, itemStyle: {color: fill[index % fill.length], opacity: isPredicted && isMeasured ? 0.5 : 1, borderColor: c.page, borderWidth: 0.6,
          decal: isMeasured ? (isPredicted ? hatch(1) : {symbol: 'none'}) : hatch(index)},
        emphasis: {disabled: true},
      });
    }
  });
  const totals = trial.ranks.flatMap((rank) => [rank.measured, rank.predicted])
    .map((values) => values.reduce((sum, value) => sum + (value ?? 0), 0));
  const top = Math.max(trial.capacity ?? 0, ...totals);
  if (trial.capacity && series.length > 0) {
    series[0].markLine = {silent: true, symbol: 'none', lineStyle: {color: c.red, width: 2, type: 'solid'},
      label: {formatter: `${isMeasured ? 'capacity' : 'fits up to'} ${bytes(trial.capacity)}`, position: 'insideEndTop', color: c.text, fontWeight: 600},
      data: [{yAxis: trial.capacity}]};
  }
  return {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item',
      formatter: (p) => describe(data, trial, trial.ranks[p.dataIndex], series[p.seriesIndex].kind === 'predicted')},
    grid: {left: isNarrow() ? 64 : 84, right: 16, top: isNarrow() ? 70 : 46, bottom: 44},
    xAxis: axis(c, {type: 'category', data: trial.ranks.map((rank) => String(rank.rank)), name: data.unit ?? 'rank', nameLocation: 'middle', nameGap: 26}),
    yAxis: axis(c, {type: 'value', max: top * 1.06, interval: byteInterval(top), axisLabel: {formatter: axisLabels('bytes', 0, top), showMaxLabel: false}}),
    series,
  };
}

export function drawMemory() {
  const data = readData('memory');
  if (data) {
    const trial = data.trials.find((t) => t.n === (shown ?? data.shown)) ?? data.trials[0];
    draw('memory', option(data, trial, colors()), forPrint() ? 310 : 380);
  }
}

export function setUpMemory() {
  list('memory', (value) => {
    shown = Number(value);
    drawMemory();
  });
}
