// Memory against throughput of all trials that ran, with the front.
import {axis, colors, common, draw, forPrint, isNarrow} from './charts.js';
import {readData} from './dom.js';
import {axisLabels, byteInterval, bytes} from './format.js';
import {describeTrial, star} from './history.js';
import {mostMarks, share, thinned, trialData} from './trials.js';

export function drawPareto() {
  const front = readData('pareto');
  const data = trialData();
  if (!front || !data) {
    return;
  }
  const c = colors();
  const ran = data.trials.filter((t) => t.status === 'ok' && !t.reference && t.peak && t.tokens);
  const best = front.front.map((n) => ran.find((t) => t.n === n)).filter(Boolean);
  const [fastest, slowest] = [Math.max(...ran.map((t) => t.tokens)), Math.min(...ran.map((t) => t.tokens))];
  const most = Math.max(front.capacity ?? 0, ...ran.map((t) => t.peak));
  const onFront = new Set(front.front);
  const smallest = Math.min(...ran.map((t) => t.peak));
  const interval = byteInterval(most - smallest);
  const [from, to] = [Math.max(0, Math.floor(smallest * 0.97 / interval) * interval), Math.ceil(most * 1.01 / interval) * interval];
  const drawn = thinned(ran.filter((t) => !onFront.has(t.n)), mostMarks,
    (t) => [share(t.peak, smallest, most), share(t.tokens, slowest, fastest)], () => '', (t) => t.winner || t.start);
  const mark = (t) => ({value: [t.peak, t.tokens], trial: t});
  const winner = ran.find((t) => t.winner);
  const series = [
    {type: 'scatter', name: 'trial', symbol: 'circle', symbolSize: 7, z: 3, data: drawn.map(mark),
      itemStyle: {color: c.blue, opacity: 0.6, borderColor: c.page, borderWidth: 0.5}},
    {type: 'line', name: 'front', step: 'end', symbol: 'diamond', symbolSize: 9, z: 4, data: best.map(mark), itemStyle: {color: c.orange},
      lineStyle: {color: c.orange, width: 2}},
  ];
  if (winner) {
    series.push({type: 'scatter', name: 'winner', symbol: star, symbolSize: 18, z: 5, data: [mark(winner)],
      itemStyle: {color: c.green, borderColor: c.page, borderWidth: 1}});
  }
  if (front.capacity) {
    series[0].markLine = {silent: true, symbol: 'none', lineStyle: {color: c.red, width: 2, type: 'solid'},
      label: {formatter: `capacity ${bytes(front.capacity)}`, position: 'end', color: c.text, fontWeight: 600}, data: [{xAxis: front.capacity}]};
  }
  draw('pareto', {
    ...common(c),
    tooltip: {...common(c).tooltip, trigger: 'item', formatter: (p) => (p.data?.trial ? describeTrial(data, p.data.trial) : '')},
    grid: {left: isNarrow() ? 56 : 76, right: 24, top: 58, bottom: 50},
    xAxis: axis(c, {type: 'value', min: from, max: to, interval, name: 'peak memory of the fullest rank',
      nameLocation: 'middle', nameGap: 30, axisLabel: {formatter: axisLabels('bytes', from, to), showMaxLabel: false}}),
    yAxis: axis(c, {type: 'value', scale: true, name: 'tokens/s', nameGap: 12, nameTextStyle: {align: 'right'},
      axisLabel: {formatter: axisLabels('count', slowest, fastest)}}),
    series,
  }, forPrint() ? 230 : 400);
}
