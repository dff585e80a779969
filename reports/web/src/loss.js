// Training loss of the final run.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {readData, tip} from './dom.js';
import {axisLabels} from './format.js';

export function drawLoss() {
  const data = readData('loss');
  if (!data) {
    return;
  }
  const c = colors();
  const few = data.steps.length <= 60;
  const known = [...data.loss.filter((value) => value !== null), ...(data.wanted > 0 ? [data.wanted] : [])];
  draw('loss', {
    ...common(c),
    legend: {show: false},
    tooltip: {...common(c).tooltip, trigger: 'axis', formatter: (items) =>
      tip(`Step ${items[0].axisValue}`, [items[0].data === null ? 'not a number' : `loss ${items[0].data.toFixed(4)}`])},
    grid: {left: isNarrow() ? 52 : 84, right: 24, top: 16, bottom: 44},
    xAxis: axis(c, {type: 'category', data: data.steps, boundaryGap: false, name: 'step', nameLocation: 'middle', nameGap: 26}),
    yAxis: axis(c, {type: 'value', scale: true, name: 'nats per token', nameLocation: 'middle', nameGap: 40,
      min: data.wanted > 0 ? (range) => Math.min(range.min, data.wanted) - 0.05 * (range.max - range.min) : null,
      axisLabel: {formatter: axisLabels('', Math.min(...known), Math.max(...known)), showMinLabel: false}}),
    series: [{type: 'line', data: data.loss, symbol: few ? 'circle' : 'none', symbolSize: 5, lineStyle: {color: c.blue, width: 2},
      itemStyle: {color: c.blue},
      markLine: data.wanted > 0 ? {silent: true, symbol: 'none', lineStyle: {color: c.red, type: 'dashed', width: 1.5},
        label: {formatter: `has to fall below ${data.wanted}`, position: 'insideEndTop', color: c.text}, data: [{yAxis: data.wanted}]} : undefined}],
  }, forPrint() ? 225 : 320);
}
