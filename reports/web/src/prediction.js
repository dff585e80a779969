// Prediction check: predicted against measured, memory left and time right, with the line of equality.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {tip} from './dom.js';
import {axisLabels, byteInterval, bytes, logLabels, ns} from './format.js';
import {mostMarks, share, thinned, trialData} from './trials.js';

function panel(c, points, index, name, format, unit, color, symbol) {
  const values = points.flatMap((p) => [p.predicted, p.measured]);
  let low = Math.min(...values) * 0.9;
  let high = Math.max(...values) * 1.1;
  const isWide = high > 20 * low;
  const place = (point) => [point.measured, point.predicted].map((value) => share(value, low, high, isWide));
  const worst = Math.max(...points.map((p) => Math.abs(p.predicted / p.measured - 1)));
  const marks = thinned(points, mostMarks, place, () => '', (p) => Math.abs(p.predicted / p.measured - 1) === worst);
  const interval = format === bytes && !isWide ? byteInterval(high - low) : undefined;
  if (interval) {
    low = Math.floor(low / interval) * interval;
    high = Math.ceil(high / interval) * interval;
  }
  const range = {type: isWide ? 'log' : 'value', gridIndex: index, min: isWide ? low : Math.max(0, low), max: high, interval,
    axisLabel: {formatter: isWide ? logLabels(unit) : axisLabels(unit, low, high), showMinLabel: false, showMaxLabel: false}, nameLocation: 'middle'};
  return {
    x: axis(c, {...range, name: `${name}, measured`, nameGap: 30}),
    y: axis(c, {...range, name: 'predicted', nameGap: 68}),
    series: [
      {type: 'line', xAxisIndex: index, yAxisIndex: index, symbol: 'none', silent: true, data: [[range.min, range.min], [high, high]],
        lineStyle: {color: c.soft, type: 'dashed', width: 1.2}},
      {type: 'scatter', name, xAxisIndex: index, yAxisIndex: index, symbol, symbolSize: 10,
        itemStyle: {color, borderColor: c.page, borderWidth: 1},
        data: marks.map((p) => ({value: [p.measured, p.predicted], point: p, format}))},
    ],
  };
}

export function drawPrediction() {
  const trials = document.getElementById('chart-prediction') ? trialData()?.trials ?? [] : [];
  const points = (predicted, measured) => trials.filter((t) => t.status === 'ok' && !t.reference && t[predicted] && t[measured])
    .map((t) => ({n: t.n, predicted: t[predicted], measured: t[measured]}));
  const data = {memory: points('predictedPeak', 'peak'), time: points('predictedStep', 'step')};
  if (!data.memory.length && !data.time.length) {
    return;
  }
  const c = colors();
  const panels = [];
  if (data.memory.length) {
    panels.push(panel(c, data.memory, panels.length, 'peak memory', bytes, 'bytes', c.blue, 'circle'));
  }
  if (data.time.length) {
    panels.push(panel(c, data.time, panels.length, 'step time', ns, 'ns', c.orange, 'diamond'));
  }
  const stacked = isNarrow();
  const grids = panels.map((_, i) => (stacked ? {left: 84, right: 16, top: 12 + 330 * i, height: 250}
    : {left: i === 0 ? 90 : '56%', width: '40%', top: 12, bottom: 52}));
  draw('prediction', {
    ...common(c),
    legend: {show: false},
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => {
      const {point, format} = p.data;
      return tip(`Trial ${point.n}`, [`predicted ${format(point.predicted)}`, `measured ${format(point.measured)}`,
        `error ${(100 * (point.predicted / point.measured - 1)).toFixed(2)} %`]);
    }},
    grid: grids, xAxis: panels.map((p) => p.x), yAxis: panels.map((p) => p.y), series: panels.flatMap((p) => p.series),
  }, stacked ? 10 + 330 * panels.length : forPrint() ? 300 : 380);
}
