// Line charts over the steps, and histograms of stored values.
const SVG = $('empty').namespaceURI;  // in place of its address: the page names none
const make = (name, attributes, parent) => {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (parent) parent.append(node);
  return node;
};
const W = 460, H = 200, L = 58, R = 8, T = 8, B = 22;
function captionOf(title) {
  const caption = document.createElement('figcaption');
  caption.append(title + ': ');
  for (const [kind, text] of [['base', 'baseline'], ['cand', 'candidate']]) {
    const key = document.createElement('b');
    key.className = 'key-' + kind;
    key.textContent = text + ' ';
    caption.append(key);
  }
  return caption;
}
// points: {x, base, cand, band}; a missing number leaves a gap.
function chart(figure, title, points) {
  figure.textContent = '';
  const values = points.flatMap((p) => [p.base - (p.band || 0), p.base + (p.band || 0), p.cand]).filter(Number.isFinite);
  const caption = captionOf(title);
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
  if (data.root_step !== null && data.root_step >= first && data.root_step <= last) {
    make('line', {class: 'mark', x1: x(data.root_step), x2: x(data.root_step), y1: T, y2: H - B}, svg);
    make('text', {class: 'mark', x: x(data.root_step) + 4, y: T + 10}, svg).textContent = `root, step ${data.root_step}`;
  }
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

for (const {id, low, high, base, cand} of data.histograms) {
  const svg = make('svg', {viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': 'histogram of the stored elements'});
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
