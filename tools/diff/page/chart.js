// Line charts over the steps, and histograms of stored values. A library of charts (uPlot: 50 kB) would be larger than all
// scripts of the page together (30 kB), and draws on a canvas, which is neither read out nor printed sharply.
const SVG = $('empty').namespaceURI;  // in place of its address: the page names none
const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
};
const H = 200, L = 58, R = 8, T = 8, B = 22;
const widthOf = (figure) => Math.max(300, figure.clientWidth || 460);  // so that text has one size
const RUNS = [['base', 'baseline'], ['cand', 'candidate']];
function captionOf(title, kinds = RUNS) {
  const caption = document.createElement('figcaption');
  caption.append(title + ': ');
  for (const [kind, text] of kinds) {
    const key = document.createElement('b');
    key.className = 'key-' + kind;
    key.textContent = text + ' ';
    caption.append(key);
  }
  return caption;
}
// Both curves would be one line: what parts them is drawn instead.
function apart(points) {
  const both = points.filter((p) => Number.isFinite(p.base) && Number.isFinite(p.cand));
  if (both.length < 2) return null;
  const values = both.flatMap((p) => [p.base, p.cand]);
  const range = values.reduce((a, b) => Math.max(a, b)) - values.reduce((a, b) => Math.min(a, b));
  const most = both.reduce((m, p) => Math.max(m, Math.abs(p.cand - p.base)), 0);
  if (most === 0 || most >= range / 50) return null;
  return points.map((p) => ({x: p.x, cand: p.cand - p.base}));
}
// points: {x, base, cand, band}; a missing number leaves a gap. With `logs` sizes are drawn by their logarithm, and 0 on
// the lowest line. A difference above `limit` is one that rounding does not explain.
function chart(figure, title, points, {logs = false, kinds = RUNS, limit = NaN} = {}) {
  figure.textContent = '';
  const difference = logs ? null : apart(points);
  if (difference) {
    points = difference;
    kinds = [['cand', 'candidate minus baseline']];
    title += ', which lie on each other';
  }
  const caption = captionOf(title, kinds), told = document.createElement('span');
  const values = points.flatMap((p) => [p.base - (p.band || 0), p.base + (p.band || 0), p.cand]).filter(Number.isFinite);
  const sizes = values.filter((v) => v > 0);
  if (!values.length) { caption.append('no numbers were recorded'); figure.append(caption); return; }
  if (logs && !sizes.length) {
    caption.append(points.every((p) => Number.isFinite(p.cand)) ? 'equal in every step' : 'they differ, and no size was measured');
    figure.append(caption);
    return;
  }
  const scaled = logs ? (v) => Math.log10(v) : (v) => v;
  let [low, high] = [Math.min, Math.max].map((pick) => (logs ? sizes.map(scaled) : values).reduce((a, b) => pick(a, b)));
  if (limit > 0) { low = Math.min(low, scaled(limit)); high = Math.max(high, scaled(limit)); }
  if (logs) { low = Math.floor(low) - 1; high = Math.ceil(high); }
  if (low === high) { low -= Math.abs(low) * 0.05 + 1e-12; high += Math.abs(high) * 0.05 + 1e-12; }
  const W = widthOf(figure), first = points[0].x, last = points[points.length - 1].x;
  const x = (v) => L + (W - L - R) * (last === first ? 0.5 : (v - first) / (last - first));
  const y = (v) => T + (H - T - B) * (high - (logs && v <= 0 ? low : scaled(v))) / (high - low);
  const svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', tabindex: 0, 'aria-label': title + '; arrow keys read it'});
  const ticks = logs ? [...new Set([low + 1, Math.round((low + 1 + high) / 2), high])].map((v) => 10 ** v) : [low, (low + high) / 2, high];
  for (const v of ticks) make('text', {x: L - 4, y: y(v) + 4, 'text-anchor': 'end'}, svg).textContent = short(v);
  if (logs) make('text', {x: L - 4, y: y(0) + 2, 'text-anchor': 'end'}, svg).textContent = 'equal';
  for (const v of new Set([first, last])) make('text', {x: x(v), y: H - 6, 'text-anchor': v === first ? 'start' : 'end'}, svg).textContent = v;
  const banded = points.filter((p) => Number.isFinite(p.band) && Number.isFinite(p.base));
  if (data.root_step !== null && data.root_step >= first && data.root_step <= last) {
    const at = x(data.root_step), right = at > W / 2;
    make('line', {class: 'mark', x1: at, x2: at, y1: T, y2: H - B}, svg);
    make('text', {class: 'mark', x: at + (right ? -4 : 4), y: H - B - 4, 'text-anchor': right ? 'end' : 'start'}, svg).textContent = `root, step ${data.root_step}`;
  }
  if (limit > 0) {
    make('line', {class: 'limit', x1: L, x2: W - R, y1: y(limit), y2: y(limit)}, svg);
    make('text', {x: W - R, y: y(limit) - 3, 'text-anchor': 'end'}, svg).textContent = UNIT;
  }
  if (banded.length) {
    const edge = (sign, list) => list.map((p) => `${x(p.x)},${y(p.base + sign * p.band)}`).join(' ');
    make('polygon', {class: 'band', points: edge(1, banded) + ' ' + edge(-1, [...banded].reverse())}, svg);
  }
  for (const [kind] of kinds) {
    let path = '', pen = 'M';
    for (const p of points) {
      if (!Number.isFinite(p[kind])) { pen = 'M'; continue; }
      path += `${pen}${x(p.x).toFixed(1)} ${y(p[kind]).toFixed(1)}`;
      pen = 'L';
    }
    make('path', {class: kind, d: path, 'stroke-width': 1.5}, svg);
    if (points.length < 60) for (const p of points) if (Number.isFinite(p[kind])) make('circle', {class: kind, cx: x(p.x), cy: y(p[kind]), r: 2}, svg);
  }
  const cursor = make('line', {class: 'cursor', y1: T, y2: H - B, visibility: 'hidden'}, svg);
  let at = -1;
  const tell = (index) => {
    at = Math.max(0, Math.min(points.length - 1, index));
    const p = points[at];
    cursor.setAttribute('visibility', 'visible');
    for (const end of ['x1', 'x2']) cursor.setAttribute(end, x(p.x));
    told.textContent = `step ${p.x}: ` + kinds.map(([kind, text]) => `${text} ${logs && p[kind] === 0 ? 'equal' : number(p[kind])}`).join(', ');
  };
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect(), here = (event.clientX - box.left) * W / box.width;
    tell(points.reduce((best, p, i) => Math.abs(x(p.x) - here) < Math.abs(x(points[best].x) - here) ? i : best, 0));
  });
  svg.addEventListener('keydown', (event) => {
    const move = {ArrowLeft: -1, ArrowRight: 1, Home: -points.length, End: points.length}[event.key];
    if (move === undefined) return;
    event.preventDefault();
    tell(at + move);
  });
  told.className = 'told';
  told.setAttribute('aria-live', 'polite');
  caption.append(document.createElement('br'), told);
  figure.append(svg, caption);
}

const perStep = (read) => data.per_step.map((s) => ({x: s.step ?? 0, base: read(s).base ?? NaN, cand: read(s).cand ?? NaN}));
const growth = data.map.growth.map((sizes, i) => ({x: data.map.steps[i], cand: sizes?.[0] ?? NaN, base: sizes?.[1] ?? NaN, over: sizes?.[2] ?? NaN}))
    .filter((p) => p.x !== null);
const CHARTS = [
  ['how far apart', () => ['differences that were measured, as shares of the values\' size', growth, {logs: true, kinds: [['cand', 'the largest'], ['base', 'the median']]}]],
  ['against the limit', () => [`the largest difference, in units of ${UNIT}`, growth.map((p) => ({x: p.x, cand: p.over})), {logs: true, kinds: [['cand', 'the largest']], limit: 1}]],
  ['loss', () => ['loss', perStep((s) => s.loss)]],
  ['gradients', () => ['norm of all gradients', perStep((s) => s.gradient_norm)]],
];
for (const [key, tab, title] of [['unclipped_norm', 'before clipping', 'norm of all gradients before clipping'], ['update_norm', 'updates', 'norm of all updates of parameters']]) {
  if (data.per_step.some((s) => s[key].base !== null)) CHARTS.push([tab, () => [title, perStep((s) => s[key])]]);
}
CHARTS.forEach(([name, of], i) => {
  const tab = document.createElement('button');
  tab.type = 'button';
  tab.textContent = name;
  tab.setAttribute('role', 'tab');
  tab.setAttribute('aria-controls', 'over');
  const choose = () => {
    for (const other of $('tabs').children) { other.setAttribute('aria-selected', other === tab); other.tabIndex = other === tab ? 0 : -1; }
    chart($('over'), ...of());
  };
  tab.addEventListener('click', choose);
  tab.addEventListener('keydown', (event) => {
    const move = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (!move) return;
    const other = $('tabs').children[(i + move + CHARTS.length) % CHARTS.length];
    other.focus();
    other.click();
  });
  $('tabs').append(tab);
});
$('tabs').firstChild.click();

for (const {id, low, high, base, cand} of data.histograms) {
  const W = widthOf($(id)), svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'histogram of the stored elements'});
  const most = Math.max(...base, ...cand), width = (W - L - R) / base.length;
  // Square roots, so that rare values beside a crowd at 0 are seen.
  const top = (n) => H - B - (H - T - B) * Math.sqrt(n / most);
  for (const [kind, bins] of [['base', base], ['cand', cand]]) {
    let path = `M${L} ${H - B}`;
    bins.forEach((n, i) => { path += `V${top(n).toFixed(1)}H${(L + (i + 1) * width).toFixed(1)}`; });
    make('path', {class: kind, d: path + `V${H - B}`, 'stroke-width': 1.5}, svg);
  }
  make('text', {x: L, y: H - 6}, svg).textContent = short(low);
  make('text', {x: W - R, y: H - 6, 'text-anchor': 'end'}, svg).textContent = short(high);
  make('text', {x: L - 4, y: T + 8, 'text-anchor': 'end'}, svg).textContent = most.toLocaleString('en');
  $(id).append(svg, captionOf('stored elements, counts on a square-root scale'));
}
