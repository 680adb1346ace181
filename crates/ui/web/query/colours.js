// Colours of series: Okabe and Ito's palette, which colour-blind people can tell apart, with dashes from the ninth series on.
// Each colour has a contrast of at least 3 on the background of its scheme.
const LIGHT = ["#0072b2", "#b45309", "#00795c", "#a8457f", "#2a7fb0", "#8a6d00", "#c0392b", "#5b5fc7"];
const DARK = ["#56b4e9", "#e69f00", "#2bbf95", "#e18bbd", "#8fd0ff", "#f0e442", "#ff7b6b", "#a5a8ff"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

export const isDark = () => {
  const { scheme } = document.documentElement.dataset;
  return scheme === "dark" || (scheme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};
/** @param {number} idx @returns {string} */
export const colourOf = idx => { const all = isDark() ? DARK : LIGHT; return all[idx % all.length] ?? "gray"; };
/** @param {number} idx @returns {number[]} */
export const dashOf = idx => DASHES[Math.floor(idx / LIGHT.length) % DASHES.length] ?? [];
/** The colour of a variable in the scheme in use, for a canvas, which knows no `light-dark()`. @param {string} name */
export function look(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const { color } = getComputedStyle(probe);
  probe.remove();
  return color;
}
