// The heat map: modules down, steps across. Only the steps in view are drawn, several in a column where they are many.
const ROW_HEIGHT_MAP = 14, MAX_MODULES = 2000;  // browsers refuse canvases beyond 32767 pixels
const perCell = data.map.steps_per_cell;
const lines = data.map.lines.map((text, scope) => {
  const cells = new Int8Array(Math.ceil(data.steps.length / perCell)).fill(-1);
  let at = 0, firstBad = Infinity;
  for (const [, letter, length] of text.matchAll(/([-a-z])(\d+)/g)) {
    const verdict = letter === '-' ? -1 : letter.charCodeAt(0) - 97;
    cells.fill(verdict, at, at + +length);
    if (isBad(verdict)) firstBad = Math.min(firstBad, at);
    at += +length;
  }
  return {scope, cells, firstBad, name: scopeName(scope)};
}).filter((line) => line.cells.some((verdict) => verdict >= 0));
const cellCount = Math.ceil(data.steps.length / perCell);
const canvas = $('heat');
let shownLines = [], from = 0, to = cellCount, gutter = 0, column = 1;  // cells from..to are in view

const lastStepOf = (cell) => data.steps[Math.min(data.steps.length, (cell + 1) * perCell) - 1] ?? 'unknown';
const stepsOf = (cell) => perCell === 1 ? `step ${lastStepOf(cell)}` : `steps ${data.steps[cell * perCell] ?? 'unknown'} to ${lastStepOf(cell)}`;
function drawMap() {
  const width = Math.max(200, $('map').clientWidth - 2), height = Math.max(1, shownLines.length) * ROW_HEIGHT_MAP;
  gutter = Math.min(260, Math.floor(width * 0.4));
  column = Math.min(24, (width - gutter) / Math.max(1, to - from));
  canvas.width = width;
  canvas.height = height;
  const pen = canvas.getContext('2d');
  pen.font = '11px system-ui,sans-serif';
  const gap = column > 4 ? 1 : 0, foreground = inStyle('--fg');
  shownLines.forEach((line, r) => {
    pen.fillStyle = foreground;
    pen.fillText(line.name.slice(-Math.floor(gutter / 6)), 4, r * ROW_HEIGHT_MAP + 11, gutter - 8);
    for (let pixel = 0, cell = from; cell < to; pixel++) {
      const end = column >= 1 ? cell + 1 : Math.min(to, from + Math.ceil((pixel + 1) / column));
      let verdict = -1;
      for (; cell < end; cell++) verdict = Math.max(verdict, line.cells[cell]);
      if (verdict < 0) continue;
      pen.fillStyle = COLORS[verdict];
      const x = column >= 1 ? gutter + pixel * column : gutter + pixel;
      pen.fillRect(x, r * ROW_HEIGHT_MAP, Math.max(1, column - gap), ROW_HEIGHT_MAP - 1);
    }
  });
  $('steps').textContent = cellCount ? `steps ${data.steps[from * perCell] ?? 'unknown'} to ${lastStepOf(to - 1)}` : 'no steps';
}
function arrange() {
  const words = $('modules').value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = lines.filter((line) => (!$('bad').checked || line.firstBad < Infinity) &&
                                       words.every((word) => line.name.toLowerCase().includes(word)));
  // Stable, so modules that never diverge, and those that do so in one step, stay in order of execution.
  if ($('order').checked) found.sort((a, b) => a.firstBad === b.firstBad ? 0 : a.firstBad - b.firstBad);
  shownLines = found.slice(0, MAX_MODULES);
  $('map-matches').textContent = `${shownLines.length.toLocaleString('en')} of ${lines.length.toLocaleString('en')} modules`;
  at.line = 0;
  drawMap();
  showCell();
}
function zoom(first, end) {
  const least = Math.min(cellCount, 8), length = Math.max(least, Math.min(cellCount, Math.round(end - first)));
  from = Math.max(0, Math.min(cellCount - length, Math.round(first)));
  to = from + length;
  at.cell = Math.max(from, Math.min(to - 1, at.cell));
  drawMap();
  showCell();
}
const zoomBy = (factor, around = (from + to) / 2) => zoom(around - (around - from) * factor, around + (to - around) * factor);

const at = {line: 0, cell: 0};
function showCell() {
  const line = shownLines[at.line], verdict = line?.cells[at.cell] ?? -1;
  $('cell').textContent = line ? `${stepsOf(at.cell)}, ${line.name}: ` + (verdict < 0 ? 'nothing compared' : data.classes[verdict]) : 'nothing compared';
}
function point(event) {
  at.cell = Math.max(from, Math.min(to - 1, from + Math.floor((event.offsetX - gutter) / column)));
  at.line = Math.max(0, Math.min(shownLines.length - 1, Math.floor(event.offsetY / ROW_HEIGHT_MAP)));
  showCell();
}
function openCell() {
  const line = shownLines[at.line];
  if (!line) return;
  $('filter').value = data.scopes[line.scope];
  $('least').value = '0';
  refilter();
  const first = at.cell * perCell;
  const k = shown.findIndex((row) => u32(row, 4) >= first && data.tensors[u32(row, 0)][1] === line.scope);
  if (k >= 0) select(k);
}
let pressed = null;  // the cell where a drag began
canvas.addEventListener('mousemove', point);
canvas.addEventListener('mousedown', (event) => { point(event); pressed = at.cell; });
addEventListener('mouseup', (event) => {
  if (pressed === null) return;
  const begun = pressed;
  pressed = null;
  if (event.target !== canvas) return;
  point(event);
  if (Math.abs(at.cell - begun) * column < 6) openCell(); else zoom(Math.min(begun, at.cell), Math.max(begun, at.cell) + 1);
});
canvas.addEventListener('wheel', (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoomBy(event.deltaY > 0 ? 2 : 0.5, from + (event.offsetX - gutter) / column);
}, {passive: false});
canvas.addEventListener('keydown', (event) => {
  const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  const act = {Enter: openCell, '+': () => zoomBy(0.5, at.cell), '-': () => zoomBy(2, at.cell), 0: () => zoom(0, cellCount)}[event.key];
  if (!move && !act) return;
  event.preventDefault();
  if (act) { act(); return; }
  at.line = Math.max(0, Math.min(shownLines.length - 1, at.line + move[0]));
  at.cell = Math.max(0, Math.min(cellCount - 1, at.cell + move[1]));
  if (at.cell < from || at.cell >= to) zoom(from + move[1], to + move[1]);
  showCell();
});
$('in').addEventListener('click', () => zoomBy(0.5, at.cell));
$('out').addEventListener('click', () => zoomBy(2, at.cell));
$('all').addEventListener('click', () => zoom(0, cellCount));
for (const id of ['modules', 'order', 'bad']) $(id).addEventListener('input', arrange);

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
addEventListener('resize', drawMap);
matchMedia('print').addEventListener('change', drawMap);
matchMedia('(prefers-color-scheme:dark)').addEventListener('change', drawMap);
data.classes.forEach((name, i) => {
  const entry = document.createElement('span'), box = document.createElement('i');
  box.style.background = COLORS[i];
  entry.append(box, name);
  $('legend').append(entry);
});
arrange();
