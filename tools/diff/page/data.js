// The page of convtrace-diff: what its other scripts share. Everything is drawn from the data in the page itself.
'use strict';
const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);
const inStyle = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const COLORS = data.classes.map((_, i) => inStyle('--c' + i));
const ROW_BYTES = 30;
// Classes from `diverged` up to what only one run has: what a root can be.
const DIVERGED = data.classes.indexOf('diverged'), UNMATCHED = data.classes.indexOf('unmatched');
const isBad = (verdict) => verdict >= DIVERGED && verdict < UNMATCHED;

const UNIT = data.exact ? 'roundoff' : 'the limit';

const packed = atob(data.rows);
const bytes = new Uint8Array(packed.length);
for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
const view = new DataView(bytes.buffer);
const count = Math.floor(bytes.length / ROW_BYTES);
const u32 = (row, at) => view.getUint32(row * ROW_BYTES + at, true);
const f32 = (row, at) => view.getFloat32(row * ROW_BYTES + at, true);
const classOf = (row) => bytes[row * ROW_BYTES + 28];
const rowOf = (i) => {
  const tensor = data.tensors[u32(i, 0)];
  const [mean, meanDifference, l2, l2Difference, tolerance] = [8, 12, 16, 20, 24].map((at) => f32(i, at));
  return {tensor, step: data.steps[u32(i, 4)], mean, meanDifference, l2, l2Difference, tolerance, verdict: classOf(i),
          field: data.fields[bytes[i * ROW_BYTES + 29]]};
};
const scopeName = (scope) => data.scopes[scope] || '(root module)';
// rank, scope, slot, op, phase, call, dtype, count: see page_rows.cpp
const nameOf = (t) => {
  const op = data.ops[t[3]];
  return (data.ranks > 1 ? `rank ${t[0]} ` : '') + scopeName(t[1]) + ' ' + data.slots[t[2]] +
         (op ? ` [${op}]` : '') + ` ${data.phases[t[4]]}` + (t[5] ? ` call ${t[5]}` : '');
};
const short = (x) => x !== 0 && (Math.abs(x) < 1e-3 || Math.abs(x) >= 1e5) ? x.toExponential(2) : String(+x.toPrecision(4));
const number = (x) => Number.isFinite(x) ? String(+x.toPrecision(6)) : '–';
