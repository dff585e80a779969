// Operations that compute against the roof of the hardware: FLOPs for each byte, and FLOP/s.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {readData, tip} from './dom.js';
import {count, logLabels, percent} from './format.js';

export function drawRoofline() {
  const data = readData('roofline');
  if (!data) {
    return;
  }
  const c = colors();
  const ridge = data.peak / data.bandwidth;
  const roofAt = (x) => Math.min(data.peak, x * data.bandwidth);
  const xs = data.ops.map((op) => op.intensity);
  const [left, right] = [Math.min(ridge, ...xs) / 2, Math.max(ridge, ...xs) * 2];
  const bound = (op) => (op.intensity < ridge ? 'bandwidth' : 'arithmetic');
  const marks = (kind, color, symbol) => ({
    type: 'scatter', name: `bound by ${kind}`, symbol, z: 3, itemStyle: {color, opacity: 0.75, borderColor: c.page, borderWidth: 0.5},
    symbolSize: (value, p) => 6 + 30 * Math.sqrt(p.data.op.share),
    data: data.ops.filter((op) => bound(op) === kind).map((op) => ({value: [op.intensity, op.rate], op})),
  });
  const describe = (p) => (p.data?.op ? tip(p.data.op.name, [
    `${p.data.op.intensity.toPrecision(3)} FLOPs a byte`, `${count(p.data.op.rate)} FLOP/s, ${percent(p.data.op.rate / p.data.op.roof)} of the roof`,
    `${percent(p.data.op.share)} of the time in operations that compute`]) : '');
  draw('roofline', {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: describe},
    grid: {left: isNarrow() ? 56 : 76, right: 24, top: 58, bottom: 50},
    xAxis: axis(c, {type: 'log', min: left, max: right, name: 'FLOPs for each byte', nameLocation: 'middle', nameGap: 30,
      axisLabel: {formatter: logLabels('count'), showMinLabel: false, showMaxLabel: false}}),
    yAxis: axis(c, {type: 'log', name: 'FLOP/s', nameGap: 12, nameTextStyle: {align: 'right'},
      axisLabel: {formatter: logLabels('count')}}),
    series: [
      {type: 'line', name: 'roof', symbol: 'none', z: 2, silent: true, lineStyle: {color: c.red, width: 2}, itemStyle: {color: c.red},
        data: [left, ridge, right].map((x) => [x, roofAt(x)])},
      marks('bandwidth', c.blue, 'circle'),
      marks('arithmetic', c.orange, 'diamond'),
    ],
  }, forPrint() ? 230 : 400);
}
