// Long work cut into short tasks, so that a page answers keys and the pointer in between.
// Invariant: results are those of `map`, `filter` and a stable `sort` in one go.

/** Longest work without a pause. */
const TASK_MS = 30;
/** Items between two looks at the clock. */
const LOOK_EVERY = 256;
/** Items of one run that is sorted in one go. */
const RUN_LENGTH = 1024;

/** Waits until the browser has handled what waits for it. @returns {Promise<void>} */
const pause = () => new Promise(resolve => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve();
  port2.postMessage(0);
});

/** A clock of one piece of work: `next` pauses if the task has lasted long enough. @param {AbortSignal} [signal] */
export function pacer(signal) {
  let since = performance.now();
  return async () => {
    if (performance.now() - since < TASK_MS) return;
    await pause();
    signal?.throwIfAborted();
    since = performance.now();
  };
}

/** @template A, B @param {A[]} items @param {(item: A) => B | B[]} map @param {AbortSignal} [signal] @returns {Promise<B[]>} */
export async function flatMapInTasks(items, map, signal) {
  const next = pacer(signal);
  /** @type {B[]} */
  const found = [];
  for (const [idx, item] of items.entries()) {
    const mapped = map(item);
    if (Array.isArray(mapped)) for (const one of mapped) found.push(one);
    else found.push(mapped);
    if (idx % LOOK_EVERY === 0) await next();
  }
  return found;
}

/** A sorted copy: a merge sort of runs. @template A @param {A[]} items @param {(a: A, b: A) => number} compare @param {AbortSignal} [signal] @returns {Promise<A[]>} */
export async function sortInTasks(items, compare, signal) {
  const next = pacer(signal);
  /** @type {A[][]} */
  let runs = [];
  for (let from = 0; from < items.length; from += RUN_LENGTH) {
    runs.push(items.slice(from, from + RUN_LENGTH).sort(compare));
    await next();
  }
  while (runs.length > 1) {
    /** @type {A[][]} */
    const merged = [];
    for (let idx = 0; idx < runs.length; idx += 2) merged.push(await mergeRuns(runs[idx] ?? [], runs[idx + 1] ?? [], compare, next));
    runs = merged;
  }
  return runs[0] ?? [];
}

/** @template A @param {A[]} left @param {A[]} right @param {(a: A, b: A) => number} compare @param {() => Promise<void>} next */
async function mergeRuns(left, right, compare, next) {
  /** @type {A[]} */
  const merged = [];
  let a = 0, b = 0;
  while (a < left.length && b < right.length) {
    const one = /** @type {A} */ (left[a]), other = /** @type {A} */ (right[b]);
    if (compare(other, one) < 0) { merged.push(other); b += 1; } else { merged.push(one); a += 1; }
    if ((a + b) % LOOK_EVERY === 0) await next();
  }
  return merged.concat(left.slice(a), right.slice(b));
}
