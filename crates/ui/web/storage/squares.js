// Layout of a treemap: rectangles with areas in proportion to sizes, as close to squares as they get
// (squarified treemap of Bruls, Huizing and van Wijk). Pure functions.

/**
 * @typedef {{ x: number, y: number, width: number, height: number }} Box
 */

/** Largest ratio of sides in a row of areas along a side. @param {number[]} row @param {number} side */
function worst(row, side) {
  const sum = row.reduce((all, area) => all + area, 0);
  return Math.max(...row.map(area => Math.max((side * side * area) / (sum * sum), (sum * sum) / (side * side * area))));
}

/** Widths of a letter, height of a line, and border with padding, of 12 px text in a box (status.css); letters of most fonts are narrower. */
const LETTER_PX = 7.4, LINE_PX = 16, AROUND_PX = { x: 12, y: 6 };

/** The part of a box's text that fits in it in whole words: name and size, the name, or nothing. @param {string} name @param {string} size @param {number} width @param {number} height Pixels. */
export function fittingText(name, size, width, height) {
  const letters = Math.floor((width - AROUND_PX.x) / LETTER_PX), lines = Math.floor((height - AROUND_PX.y) / LINE_PX);
  const fits = (/** @type {string} */ text) => {
    let used = 1, at = 0;
    for (const word of text.split(" ")) {
      if (word.length > letters) return false;
      if (at && at + 1 + word.length > letters) { used += 1; at = 0; }
      at += word.length + (at ? 1 : 0);
    }
    return used <= lines;
  };
  return fits(`${name} ${size}`) ? "both" : fits(name) ? "name" : "";
}

/** Boxes of sizes, which have to descend and be above 0. @param {number[]} sizes @param {Box} box @returns {Box[]} */
export function squarify(sizes, box) {
  const all = sizes.reduce((sum, size) => sum + size, 0), areas = sizes.map(size => (size / all) * box.width * box.height);
  /** @type {Box[]} */
  const boxes = [];
  let rest = { ...box };
  for (let at = 0; at < areas.length;) {
    const side = Math.min(rest.width, rest.height);
    let end = at + 1;
    while (end < areas.length && worst(areas.slice(at, end + 1), side) <= worst(areas.slice(at, end), side)) end += 1;
    rest = placeRow(areas.slice(at, end), rest, boxes);
    at = end;
  }
  return boxes;
}

/** Adds a row along the shorter side; the rest of the box. @param {number[]} row @param {Box} box @param {Box[]} boxes @returns {Box} */
function placeRow(row, box, boxes) {
  const sum = row.reduce((all, area) => all + area, 0), isWide = box.width >= box.height, thick = sum / (isWide ? box.height : box.width);
  let at = isWide ? box.y : box.x;
  for (const area of row) {
    const long = area / thick;
    boxes.push(isWide ? { x: box.x, y: at, width: thick, height: long } : { x: at, y: box.y, width: long, height: thick });
    at += long;
  }
  return isWide ? { ...box, x: box.x + thick, width: box.width - thick } : { ...box, y: box.y + thick, height: box.height - thick };
}
