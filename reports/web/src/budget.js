// Step budget: one stacked bar per traced trial.
import {axis, colors, common, draw, forPrint, hatch, widthOf} from './charts.js';
import {choice, readData, tip} from './dom.js';
import {axisLabels, ns, percent} from './format.js';

// Transfers share one colour and differ in hatch.
const transferHatches = [0, 1, 3, 4, 5, 2, 6];

let unit = 'time';

// Room for the legend: its rows depend on the names and on the width.
function legendHeight(names) {
  const width = widthOf('budget');
  let rows = 1;
  let used = 0;
  for (const name of names) {
    const item = 36 + 6.6 * name.length;
    if (used > 0 && used + item > width) {
      ++rows;
      used = 0;
    }
    used += item;
  }
  return 12 + 24 * rows;
}

function option(data, c) {
  let transfers = 0;
  const series = data.parts.map((part, index) => {
    const [name, hatching] = data.styles[index];
    const [color, pattern] = name ? [c[name], hatching] : [transfers % 2 ? c.red : c.orange, transferHatches[transfers++ % transferHatches.length]];
    return {
      type: 'bar', name: part, stack: 'step', barMaxWidth: 20, emphasis: {disabled: true},
      itemStyle: {color, borderColor: c.page, borderWidth: 0.6, decal: hatch(pattern)},
      data: data.trials.map((t) => (unit === 'time' ? t.parts[index] : t.parts[index] / t.step)),
    };
  });
  return {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'axis', axisPointer: {type: 'shadow'}, formatter: (items) => {
      const trial = data.trials[items[0].dataIndex];
      return tip(`${trial.name}: ${ns(trial.step)}${trial.wall ? `, ${trial.wall} wall` : ''}`,
        data.parts.map((part, i) => (trial.parts[i] > 0 ? `${part} ${ns(trial.parts[i])}, ${percent(trial.parts[i] / trial.step)}` : '')));
    }},
    grid: {left: Math.max(52, 16 + 7 * Math.max(...data.trials.map((t) => t.label.length))), right: 24, top: legendHeight(data.parts), bottom: 34},
    xAxis: axis(c, {type: 'value', max: unit === 'time' ? null : 1, axisLabel: {formatter: unit === 'time' ? axisLabels('ns', 0, Math.max(...data.trials.map((t) => t.step))) : (ratio) => `${Math.round(100 * ratio)} %`}}),
    yAxis: axis(c, {type: 'category', inverse: true, data: data.trials.map((t) => t.label), axisLabel: {interval: 0, hideOverlap: false}}),
    series,
  };
}

export function drawBudget() {
  const data = readData('budget');
  if (data) {
    draw('budget', option(data, colors()), legendHeight(data.parts) + 44 + (forPrint() ? 17 : 24) * data.trials.length);
  }
}

export function setUpBudget() {
  choice('budget', (value) => {
    unit = value;
    drawBudget();
  });
}
