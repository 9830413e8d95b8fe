// The map: modules down, as a tree, and steps across. Only the rows and steps in view are drawn, several steps in a column
// where they are many.
const ROW = 16, INDENT = 12;
const STEPS = data.map.steps ?? [], perCell = data.map.steps_per_cell, cellCount = Math.ceil(STEPS.length / perCell);
const CELL_STEPS = data.steps.map((step) => STEPS.indexOf(step));  // of the steps of rows
const canvas = $('heat'), map = $('map');
// As Heat in heat_map.h.
const NOTHING = 0, MEASURED = 3, ONE_SIDED = 6, HASHES = 7, NO_NUMBER = 13;
const upTo = (n) => `up to ${n} x ${UNIT}`;
const HEATS = ['nothing compared', 'equal', 'agrees, not measured', ...['0.01', '0.1', '1'].map(upTo), 'in one run only',
               'differs, hashes alone are known', ...['10', '100', '1,000', '100,000'].map(upTo), `more than 100,000 x ${UNIT}`,
               'differs, without a number'];
const HEAT_COLORS = HEATS.map((_, i) => i && inStyle('--h' + i));

// As in heat_map.cpp: a value of one run alone hides no difference.
const gravity = (verdict) => verdict === UNMATCHED ? DIVERGED - 0.5 : verdict;

// What the page holds of a module: for each phase the heat and the class of each cell.
const parts = data.map.lines.map(([scope, phase, text]) => {
  const heat = new Uint8Array(cellCount), verdict = new Uint8Array(cellCount);
  let at = 0;
  for (const [, kind, warmth, length] of text.matchAll(/(?:-|([a-z])([A-Z]))(\d+)/g)) {
    if (kind) {
      heat.fill(warmth.charCodeAt(0) - 65, at, at + +length);
      verdict.fill(kind.charCodeAt(0) - 97, at, at + +length);
    }
    at += +length;
  }
  return {scope, phase, heat, verdict};
});

// A node of the tree stands for the modules whose names begin with its path.
function nodeOf(path, label, parent) {
  return {path, label, parent, children: new Map(), scope: -1, open: false, order: Infinity, count: 0, heat: null, verdict: null, firstBad: Infinity};
}
const tree = nodeOf('', '', null), modules = new Map();
data.order.forEach((scope, order) => {
  let node = tree;
  for (const word of (data.scopes[scope] || '(root module)').split('.')) {
    if (!node.children.has(word)) node.children.set(word, nodeOf(node.path ? node.path + '.' + word : word, word, node));
    node = node.children.get(word);
  }
  node.scope = scope;
  modules.set(scope, node);
  for (let up = node; up; up = up.parent) { up.order = Math.min(up.order, order); up.count++; }
});
// A list of modules, which is not called itself, is one row until it is opened: h.*
(function join(node) {
  for (let [word, child] of [...node.children]) {
    while (child.scope < 0 && child.children.size === 1) {
      const [only] = child.children.values();
      only.label = child.label + '.' + only.label;
      only.parent = node;
      child = only;
    }
    if (child.scope < 0) child.label += '.*';
    node.children.set(word, child);
    join(child);
  }
})(tree);

// The root's row is on top; its way down is open, and a small model is open as a whole.
const rootNode = modules.get(data.scopes.indexOf(data.root_scope ?? ' '));
for (const node of modules.values()) for (let up = node; modules.size <= 40 && up; up = up.parent) up.open = true;
for (let up = rootNode?.parent; up; up = up.parent) up.open = true;

function warm(phase) {
  (function clear(node) {
    node.heat = new Uint8Array(cellCount);
    node.verdict = new Uint8Array(cellCount);
    node.firstBad = Infinity;
    node.any = false;
    for (const child of node.children.values()) clear(child);
  })(tree);
  for (const part of parts) {
    if (phase >= 0 && part.phase !== phase) continue;
    for (let node = modules.get(part.scope); node; node = node.parent) {
      node.any = true;
      for (let i = 0; i < cellCount; i++) {
        if (part.heat[i] > node.heat[i]) node.heat[i] = part.heat[i];
        if (part.heat[i] && gravity(part.verdict[i]) > gravity(node.verdict[i])) node.verdict[i] = part.verdict[i];
        if (part.heat[i] && isBad(part.verdict[i])) node.firstBad = Math.min(node.firstBad, i);
      }
    }
  }
}

let rows = [], from = 0, to = cellCount, gutter = 0, column = 1;  // cells from..to are in view
const at = {line: 0, cell: 0};
const lastStepOf = (cell) => STEPS[Math.min(STEPS.length, (cell + 1) * perCell) - 1] ?? 'unknown';
const stepsOf = (cell) => perCell === 1 ? `step ${lastStepOf(cell)}` : `steps ${STEPS[cell * perCell] ?? 'unknown'} to ${lastStepOf(cell)}`;

function drawMap(whole = false) {
  const all = Math.max(1, rows.length) * ROW, width = Math.max(200, map.clientWidth), height = whole ? Math.min(all, 30000) : Math.min(all, 512);
  const scale = devicePixelRatio || 1, top = whole ? 0 : map.scrollTop;
  gutter = Math.min(280, Math.floor(width * 0.4));
  column = Math.min(24, (width - gutter) / Math.max(1, to - from));
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = width + 'px';
  canvas.style.height = height + 'px';
  $('map-rest').style.height = all - height + 'px';
  const pen = canvas.getContext('2d');
  pen.scale(scale, scale);
  pen.font = '12px system-ui,sans-serif';
  const gap = column > 4 ? 1 : 0, foreground = inStyle('--fg'), mark = inStyle('--mark'), background = inStyle('--bg');
  const end = Math.min(rows.length, Math.ceil((top + height) / ROW));
  for (let r = Math.floor(top / ROW); r < end; r++) {
    const {node, depth, label} = rows[r], y = r * ROW - top;
    pen.fillStyle = foreground;
    const sign = node.children.size && depth >= 0 ? (node.open ? '▾ ' : '▸ ') : '';
    pen.fillText(sign + label, 4 + INDENT * Math.max(0, depth), y + 12, gutter - 8 - INDENT * Math.max(0, depth));
    for (let pixel = 0, cell = from; cell < to; pixel++) {
      const stop = column >= 1 ? cell + 1 : Math.min(to, from + Math.ceil((pixel + 1) / column));
      let heat = NOTHING;
      for (; cell < stop; cell++) heat = Math.max(heat, node.heat[cell]);
      if (heat === NOTHING) continue;
      const x = column >= 1 ? gutter + pixel * column : gutter + pixel, wide = Math.max(1, column - gap);
      pen.fillStyle = HEAT_COLORS[heat];
      pen.fillRect(x, y, wide, ROW - 1);
      if (column < 6 || heat < HASHES) continue;
      pen.fillStyle = heat === NO_NUMBER ? background : mark;  // not by colour alone
      if (heat === NO_NUMBER || heat === HASHES) pen.fillText('×', x + wide / 2 - 3.5, y + 12);
      else pen.fillRect(x + wide / 2 - 1.5, y + ROW / 2 - 2, 3, 3);
    }
  }
  $('steps').textContent = cellCount ? `steps ${STEPS[from * perCell] ?? 'unknown'} to ${lastStepOf(to - 1)}` : 'no steps';
}

function arrange() {
  const words = $('modules').value.toLowerCase().split(/\s+/).filter(Boolean), onlyBad = $('bad').checked;
  const fits = (node) => node.any && (!onlyBad || node.firstBad < Infinity);
  const sorted = (nodes) => nodes.filter(fits).sort((a, b) =>
    $('order').checked && a.firstBad !== b.firstBad ? a.firstBad - b.firstBad : a.order - b.order);
  const named = (node) => scopeName(node.scope);
  rows = [];
  if (words.length) {
    const found = [...modules.values()].filter((node) => words.every((word) => named(node).toLowerCase().includes(word)));
    for (const node of sorted(found)) rows.push({node, depth: -1, label: named(node)});
  } else {
    if (rootNode && fits(rootNode)) rows.push({node: rootNode, depth: -1, label: 'root: ' + named(rootNode)});
    (function show(node, depth) {
      for (const child of sorted([...node.children.values()])) {
        rows.push({node: child, depth, label: child.label + (child.open || child.count < 2 ? '' : ` (${child.count})`)});
        if (child.open) show(child, depth + 1);
      }
    })(tree, 0);
  }
  const told = new Set(words.length ? rows.map((row) => row.node) : [...modules.values()].filter(fits)).size;
  $('map-matches').textContent = `${told.toLocaleString('en')} of ${modules.size.toLocaleString('en')} modules`;
  at.line = Math.min(at.line, Math.max(0, rows.length - 1));
  drawMap();
  showCell();
}
function toggle(row) {
  if (!row || row.depth < 0 || !row.node.children.size) return false;
  row.node.open = !row.node.open;
  arrange();
  return true;
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

const pathOf = (node) => node.scope >= 0 ? scopeName(node.scope) : node.path + '.*';
function showCell() {
  const node = rows[at.line]?.node, heat = node?.heat[at.cell] ?? NOTHING;
  $('cell').textContent = !node ? 'nothing compared' : `${stepsOf(at.cell)}, ${pathOf(node)}: ` +
      (heat === NOTHING ? HEATS[0] : data.classes[node.verdict[at.cell]] + (heat >= MEASURED && heat !== ONE_SIDED ? `, ${HEATS[heat]}` : ''));
}
function point(event) {
  at.cell = Math.max(from, Math.min(to - 1, from + Math.floor((event.offsetX - gutter) / column)));
  at.line = Math.max(0, Math.min(rows.length - 1, Math.floor((event.offsetY + map.scrollTop) / ROW)));
  showCell();
}
function openCell() {
  const node = rows[at.line]?.node;
  if (!node) return;
  $('filter').value = node.scope >= 0 ? data.scopes[node.scope] : node.path;
  $('least').value = '0';
  refilter();
  const first = at.cell * perCell;
  const k = shown.findIndex((row) => {
    const scope = data.tensors[u32(row, 0)][1];
    return CELL_STEPS[u32(row, 4)] >= first && (node.scope < 0 ? data.scopes[scope].startsWith(node.path + '.') : scope === node.scope);
  });
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
  if (event.offsetX < gutter) { toggle(rows[at.line]); return; }
  if (Math.abs(at.cell - begun) * column < 6) openCell(); else zoom(Math.min(begun, at.cell), Math.max(begun, at.cell) + 1);
});
canvas.addEventListener('wheel', (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  zoomBy(event.deltaY > 0 ? 2 : 0.5, from + (event.offsetX - gutter) / column);
}, {passive: false});
canvas.addEventListener('keydown', (event) => {
  const move = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
  const act = {Enter: openCell, ' ': () => toggle(rows[at.line]), '+': () => zoomBy(0.5, at.cell), '-': () => zoomBy(2, at.cell), 0: () => zoom(0, cellCount)}[event.key];
  if (!move && !act) return;
  event.preventDefault();
  if (act) { act(); return; }
  at.line = Math.max(0, Math.min(rows.length - 1, at.line + move[0]));
  at.cell = Math.max(0, Math.min(cellCount - 1, at.cell + move[1]));
  map.scrollTop = Math.min(at.line * ROW, Math.max(map.scrollTop, (at.line + 1) * ROW - map.clientHeight));
  if (at.cell < from || at.cell >= to) zoom(from + move[1], to + move[1]);
  showCell();
});
map.addEventListener('scroll', () => requestAnimationFrame(() => drawMap()));
$('in').addEventListener('click', () => zoomBy(0.5, at.cell));
$('out').addEventListener('click', () => zoomBy(2, at.cell));
$('all').addEventListener('click', () => zoom(0, cellCount));
for (const id of ['modules', 'order', 'bad']) $(id).addEventListener('input', arrange);
for (const phase of [...new Set(parts.map((part) => part.phase))].sort((a, b) => a - b)) {
  const option = document.createElement('option');
  option.value = phase;
  option.textContent = data.phases[phase];
  $('phase').append(option);
}
$('phase').addEventListener('input', () => { warm(+$('phase').value); arrange(); });

// Paper is white whatever the screen is, and nobody can open what is closed on it.
let opened = [];
addEventListener('beforeprint', () => {
  opened = [...document.querySelectorAll('details:not([open]):not(.long)')];
  for (const part of opened) part.open = true;
  drawMap(true);
});
addEventListener('afterprint', () => {
  for (const part of opened) part.open = false;
  drawMap();
});
addEventListener('resize', () => drawMap());
matchMedia('print').addEventListener('change', (event) => drawMap(event.matches));
matchMedia('(prefers-color-scheme:dark)').addEventListener('change', () => drawMap());
HEATS.forEach((name, i) => {
  if (i === NOTHING || !parts.some((part) => part.heat.includes(i))) return;
  const entry = document.createElement('span'), box = document.createElement('i');
  box.style.background = HEAT_COLORS[i];
  entry.append(box, name);
  $('legend').append(entry);
});
// It opens with the phase where the runs part: later phases of the same step hide it.
const rootPhase = data.phases.indexOf(data.root_phase), opens = parts.some((part) => part.phase === rootPhase) ? rootPhase : -1;
$('phase').value = opens;
warm(opens);
arrange();
