// The page of convtrace-diff: plots, heat map and listing, drawn from the data in the page itself.
'use strict';
(() => {
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const COLORS = ['#2da44e', '#6fbf73', '#a8cf8e', '#f0c34e', '#d1242f', '#8250df', '#a40e26', '#e36209', '#8c959f'];
const ROW_BYTES = 30, ROW_HEIGHT = 24;

const packed = atob(data.rows);
const bytes = new Uint8Array(packed.length);
for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
const view = new DataView(bytes.buffer);
const count = Math.floor(bytes.length / ROW_BYTES);
const u32 = (row, at) => view.getUint32(row * ROW_BYTES + at, true);
const f32 = (row, at) => view.getFloat32(row * ROW_BYTES + at, true);
const rowOf = (i) => {
  const tensor = data.tensors[u32(i, 0)];
  const [mean, meanDifference, l2, l2Difference, tolerance] = [8, 12, 16, 20, 24].map((at) => f32(i, at));
  return {index: i, id: u32(i, 0), tensor, step: data.steps[u32(i, 4)], stepIndex: u32(i, 4), mean, meanDifference, l2,
          l2Difference, tolerance, verdict: bytes[i * ROW_BYTES + 28], field: data.fields[bytes[i * ROW_BYTES + 29]]};
};
// rank, scope, slot, op, phase, call, dtype, count: see page_rows.cpp
const nameOf = (t) => {
  const op = data.ops[t[3]];
  return (data.ranks > 1 ? `rank ${t[0]} ` : '') + (data.scopes[t[1]] || '(root module)') + ' ' + data.slots[t[2]] +
         (op ? ` [${op}]` : '') + ` ${data.phases[t[4]]}` + (t[5] ? ` call ${t[5]}` : '');
};
const short = (x) => x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5) ? x.toExponential(2) : String(+x.toPrecision(4));
const number = (x) => Number.isFinite(x) ? String(+x.toPrecision(6)) : '–';

// ---- line charts ----
const SVG = $('empty').namespaceURI;  // in place of its address: the page names none
const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
};
// points: {x, base, cand, band}; a missing number leaves a gap.
function chart(figure, title, points) {
  figure.textContent = '';
  const W = 460, H = 200, L = 58, R = 8, T = 8, B = 22;
  const values = points.flatMap((p) => [p.base - (p.band || 0), p.base + (p.band || 0), p.cand]).filter(Number.isFinite);
  const caption = document.createElement('figcaption');
  caption.append(title + ': ');
  for (const [kind, text] of [['base', 'baseline'], ['cand', 'candidate']]) {
    const key = document.createElement('b');
    key.className = 'key-' + kind;
    key.textContent = text + ' ';
    caption.append(key);
  }
  if (!values.length) { caption.append('no numbers were recorded'); figure.append(caption); return; }
  let low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  if (low === high) { low -= Math.abs(low) * 0.05 + 1e-12; high += Math.abs(high) * 0.05 + 1e-12; }
  const first = points[0].x, last = points[points.length - 1].x;
  const x = (v) => L + (W - L - R) * (last === first ? 0.5 : (v - first) / (last - first));
  const y = (v) => T + (H - T - B) * (high - v) / (high - low);
  const svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': title});
  for (const v of [low, (low + high) / 2, high]) {
    make('text', {x: L - 4, y: y(v) + 4, 'text-anchor': 'end'}, svg).textContent = short(v);
  }
  for (const v of new Set([first, last])) make('text', {x: x(v), y: H - 6, 'text-anchor': v === first ? 'start' : 'end'}, svg).textContent = v;
  const banded = points.filter((p) => Number.isFinite(p.band) && Number.isFinite(p.base));
  if (banded.length) {
    const edge = (sign, list) => list.map((p) => `${x(p.x)},${y(p.base + sign * p.band)}`).join(' ');
    make('polygon', {class: 'band', points: edge(1, banded) + ' ' + edge(-1, [...banded].reverse())}, svg);
  }
  for (const kind of ['base', 'cand']) {
    let path = '', pen = 'M';
    for (const p of points) {
      if (!Number.isFinite(p[kind])) { pen = 'M'; continue; }
      path += `${pen}${x(p.x).toFixed(1)} ${y(p[kind]).toFixed(1)}`;
      pen = 'L';
    }
    make('path', {class: kind, d: path, 'stroke-width': 1.5}, svg);
    if (points.length < 60) for (const p of points) if (Number.isFinite(p[kind])) make('circle', {class: kind, cx: x(p.x), cy: y(p[kind]), r: 2}, svg);
  }
  figure.append(svg, caption);
}
const perStep = (read) => data.per_step.map((s) => ({x: s.step, base: read(s).base ?? NaN, cand: read(s).cand ?? NaN}));
chart($('loss'), 'loss', perStep((s) => s.loss));
chart($('norm'), 'norm of all gradients', perStep((s) => s.gradient_norm));

// ---- heat map: modules down, steps across ----
const worst = new Map();  // scope -> class by index of the step
for (let i = 0; i < count; i++) {
  const scope = data.tensors[u32(i, 0)][1], step = u32(i, 4), verdict = bytes[i * ROW_BYTES + 28];
  if (!worst.has(scope)) worst.set(scope, new Int8Array(data.steps.length).fill(-1));
  const line = worst.get(scope);
  if (verdict > line[step]) line[step] = verdict;
}
const scopes = [...worst.keys()];
const cell = Math.max(2, Math.min(24, Math.floor(900 / Math.max(1, data.steps.length)))), rowHeight = scopes.length > 200 ? 4 : 14;
const canvas = $('heat'), gutter = rowHeight > 4 ? Math.min(260, Math.floor(innerWidth * 0.45)) : 0;  // names of modules, where they can be read
// Browsers refuse canvases beyond 32767 pixels.
canvas.width = Math.min(32000, gutter + cell * data.steps.length);
canvas.height = Math.min(32000, rowHeight * scopes.length);
function drawMap() {
  const pen = canvas.getContext('2d');
  pen.clearRect(0, 0, canvas.width, canvas.height);
  pen.font = '11px system-ui,sans-serif';
  pen.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--fg');
  scopes.forEach((scope, r) => {
    if (gutter) pen.fillText((data.scopes[scope] || '(root module)').slice(-Math.floor(gutter / 6)), 4, r * rowHeight + 11, gutter - 8);
  });
  scopes.forEach((scope, r) => worst.get(scope).forEach((verdict, s) => {
    if (verdict < 0) return;
    pen.fillStyle = COLORS[verdict];
    pen.fillRect(gutter + s * cell, r * rowHeight, cell - (cell > 4 ? 1 : 0), rowHeight - (rowHeight > 4 ? 1 : 0));
  }));
}
drawMap();
// Paper is white whatever the screen is, and nobody can open what is closed on it.
let opened = [];
addEventListener('beforeprint', () => {
  opened = [...document.querySelectorAll('details:not([open]):not(.long)')];
  for (const part of opened) part.open = true;
  drawMap();
});
addEventListener('afterprint', () => {
  for (const part of opened) part.open = false;
  drawMap();
});
matchMedia('print').addEventListener('change', drawMap);
matchMedia('(prefers-color-scheme:dark)').addEventListener('change', drawMap);
const at = {scope: 0, step: 0};
function showCell() {
  const scope = scopes[at.scope], verdict = worst.get(scope)?.[at.step] ?? -1;
  $('cell').textContent = scopes.length ? `step ${data.steps[at.step] ?? 'unknown'}, ${data.scopes[scope] || '(root module)'}: ` +
      (verdict < 0 ? 'nothing compared' : data.classes[verdict]) : 'nothing compared';
}
canvas.addEventListener('mousemove', (event) => {
  at.step = Math.min(data.steps.length - 1, Math.max(0, Math.floor((event.offsetX - gutter) / cell)));
  at.scope = Math.min(scopes.length - 1, Math.floor(event.offsetY / rowHeight));
  showCell();
});
canvas.addEventListener('click', () => { $('filter').value = data.scopes[scopes[at.scope]]; refilter(); });
canvas.addEventListener('keydown', (event) => {
  const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  if (event.key === 'Enter') canvas.click();
  if (!move) return;
  event.preventDefault();
  at.scope = Math.max(0, Math.min(scopes.length - 1, at.scope + move[0]));
  at.step = Math.max(0, Math.min(data.steps.length - 1, at.step + move[1]));
  showCell();
});
showCell();
data.classes.forEach((name, i) => {
  const entry = document.createElement('span'), box = document.createElement('i');
  box.style.background = COLORS[i];
  entry.append(box, name);
  $('legend').append(entry);
});

// ---- listing: only the rows in sight exist ----
let shown = [], selected = -1;
const spacer = document.createElement('div');
$('list').append(spacer);
function refilter() {
  const words = $('filter').value.toLowerCase().split(/\s+/).filter(Boolean), least = +$('least').value;
  const fits = new Map();
  shown = [];
  for (let i = 0; i < count; i++) {
    if (bytes[i * ROW_BYTES + 28] < least) continue;
    const id = u32(i, 0);
    if (!fits.has(id)) {
      const name = nameOf(data.tensors[id]).toLowerCase();
      fits.set(id, words.every((word) => name.includes(word)));
    }
    if (fits.get(id)) shown.push(i);
  }
  selected = shown.length ? 0 : -1;
  spacer.style.height = shown.length * ROW_HEIGHT + 'px';
  $('list').scrollTop = 0;
  $('matches').textContent = `${shown.length.toLocaleString('en')} of ${count.toLocaleString('en')} values` +
      (data.left_out ? `; ${data.left_out.toLocaleString('en')} more are not in this page: see --csv` : '');
  draw();
  plot();
}
function draw() {
  const list = $('list'), first = Math.max(0, Math.floor(list.scrollTop / ROW_HEIGHT) - 5);
  const end = Math.min(shown.length, first + Math.ceil(list.clientHeight / ROW_HEIGHT) + 10);
  for (const old of list.querySelectorAll('.row')) old.remove();
  for (let k = first; k < end; k++) {
    const row = rowOf(shown[k]), line = document.createElement('div');
    line.className = 'row';
    line.id = 'row' + k;
    line.setAttribute('role', 'option');
    line.setAttribute('aria-selected', k === selected);
    line.style.top = k * ROW_HEIGHT + 'px';
    line.style.borderLeft = '6px solid ' + COLORS[row.verdict];
    line.textContent = `step ${row.step ?? '?'}  ${data.classes[row.verdict].padEnd(12)} ${nameOf(row.tensor)}  ` +
        (Number.isFinite(row.meanDifference) ? `mean ${number(row.mean)} | ${number(row.mean + row.meanDifference)}` : '');
    line.addEventListener('click', () => select(k));
    list.append(line);
  }
  list.setAttribute('aria-activedescendant', 'row' + selected);
}
function select(k) {
  selected = Math.max(0, Math.min(shown.length - 1, k));
  const list = $('list'), top = selected * ROW_HEIGHT;
  if (top < list.scrollTop) list.scrollTop = top;
  if (top + ROW_HEIGHT > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW_HEIGHT - list.clientHeight;
  draw();
  plot();
}
$('list').addEventListener('keydown', (event) => {
  const page = Math.floor($('list').clientHeight / ROW_HEIGHT);
  const move = {ArrowUp: -1, ArrowDown: 1, PageUp: -page, PageDown: page, Home: -shown.length, End: shown.length}[event.key];
  if (move === undefined) return;
  event.preventDefault();
  if (shown.length) select(selected + move);
});
let pending = false;
$('list').addEventListener('scroll', () => {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; draw(); });
});
for (const id of ['filter', 'least', 'field']) $(id).addEventListener('input', id === 'field' ? plot : refilter);

// ---- one tensor over the steps, with what was allowed ----
function plot() {
  const figure = $('tensor');
  if (selected < 0) { figure.textContent = ''; return; }
  const id = u32(shown[selected], 0), field = $('field').value, points = [];
  for (let i = 0; i < count; i++) {
    if (u32(i, 0) !== id) continue;
    const row = rowOf(i), n = row.tensor[7];
    const std = (mean, l2) => Math.sqrt(Math.max(0, l2 * l2 / n - mean * mean));
    const both = {mean: [row.mean, row.mean + row.meanDifference], l2: [row.l2, row.l2 + row.l2Difference],
                  std: [std(row.mean, row.l2), std(row.mean + row.meanDifference, row.l2 + row.l2Difference)]}[field];
    points.push({x: row.step ?? 0, base: both[0], cand: both[1], band: row.field === {mean: 'mean', l2: 'norm'}[field] ? row.tolerance : NaN});
  }
  points.sort((a, b) => a.x - b.x);
  chart(figure, `${field} of ${nameOf(data.tensors[id])}, ${data.dtypes[data.tensors[id][6]]}`, points);
}
refilter();
// Opens where the runs part, with a few values before it.
const parts = data.classes.indexOf('diverged'), ends = data.classes.indexOf('unmatched');
const parted = shown.findIndex((i) => bytes[i * ROW_BYTES + 28] >= parts && bytes[i * ROW_BYTES + 28] < ends);
if (parted > 0) {
  $('list').scrollTop = (parted - 3) * ROW_HEIGHT;
  select(parted);
}
document.documentElement.dataset.ready = count;
})();
