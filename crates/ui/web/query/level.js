// A level in a graph: a dashed line with its text, for thresholds. Pure functions of a plot.
import { short } from "../format.js";
import { look } from "./colours.js";

/** @typedef {{ sign: string, value: number }} Level */

/** A range of values that has the level in it. @param {number | null} low @param {number | null} high @param {Level | null} level @returns {[number | null, number | null]} */
export const rangeWith = (low, high, level) => (level ? [Math.min(low ?? level.value, level.value), Math.max(high ?? level.value, level.value)] : [low, high]);

/** @param {any} plot @param {Level | null} level */
export function drawLevel(plot, level) {
  if (!level) return;
  const { ctx } = plot, { left, top, width, height } = plot.bbox, y = plot.valToPos(level.value, "y", true);
  if (!(y >= top && y <= top + height)) return;
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = look("--bad");
  ctx.lineWidth = 1.5 * devicePixelRatio;
  ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  ctx.beginPath();
  ctx.moveTo(left, y);
  ctx.lineTo(left + width, y);
  ctx.stroke();
  ctx.font = `${12 * devicePixelRatio}px system-ui`;
  ctx.textAlign = "right";
  // Below the line where there is no room above it.
  const isLow = y - top > 18 * devicePixelRatio;
  ctx.textBaseline = isLow ? "bottom" : "top";
  ctx.fillText(`${level.sign} ${short(level.value)}`, left + width - 4 * devicePixelRatio, y + (isLow ? -2 : 2) * devicePixelRatio);
  ctx.restore();
}
