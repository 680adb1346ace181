// Bundles third parties into build/lib, our modules and styles into build/, and the texts of licences into build/licences.txt.
// Entries are the files of web/lib: what a bundle exports is what its entry exports, and tsc checks the entry. Our modules
// become one app.js, pages that are opened later included; it is not minified, so that a browser shows what was written.
// Invariants: equal packages (package-lock.json) and sources give equal bytes. build/sources.txt is the hash of the sources,
// without which the server takes the modules one by one: a bundle of older sources is never served.
import { createHash } from "node:crypto";
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
for (const name of readdirSync(join(here, "build"))) if (!name.startsWith(".")) rmSync(join(here, "build", name), { recursive: true });
/** @type {import("esbuild").BuildOptions & { metafile: true }} */
const common = { absWorkingDir: here, bundle: true, format: "esm", target: "es2022", legalComments: "none", metafile: true, logLevel: "warning" };
const { metafile } = await build({ ...common, entryPoints: ["web/lib/ui.js", "web/lib/editor.js", "web/lib/ui.css"], outdir: "build/lib", minify: true });
// Modules of third parties stay files of their own, next to app.js.
const thirdParties = {
  name: "third-parties",
  setup: (/** @type {import("esbuild").PluginBuild} */ hooks) => hooks.onResolve({ filter: /\/lib\/\w+\.js$/ }, ({ path }) => ({ path: `./lib/${path.slice(path.lastIndexOf("/") + 1)}`, external: true })),
};
const own = await build({ ...common, entryPoints: ["web/app.js", "web/app.css"], outdir: "build", plugins: [thirdParties] });
writeFileSync(join(here, "build/sources.txt"), hashOf(join(here, "web")));

/** The hash that the server has of the same files (src/lib.rs): of paths in the order of their bytes and of contents, each with its length. @param {string} folder */
function hashOf(folder) {
  const hash = createHash("sha256"), paths = readdirSync(folder, { recursive: true, withFileTypes: true }).filter(entry => entry.isFile()).map(entry => Buffer.from(relative(folder, join(entry.parentPath, entry.name)))).sort(Buffer.compare);
  for (const path of paths.filter(path => path[0] !== 0x2e)) for (const part of [path, readFileSync(join(folder, path.toString()))]) {
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(part.length));
    hash.update(length).update(part);
  }
  return hash.digest("hex").slice(0, 16);
}

const PACKAGE = /^node_modules\/((?:@[^/]+\/)?[^/]+)\//;
const packages = new Set(Object.keys(metafile.inputs).map(path => PACKAGE.exec(path)?.[1]));
packages.delete(undefined);
const texts = [...packages].sort().map(name => {
  const folder = join(here, "node_modules", name);
  const { version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
  const file = readdirSync(folder).sort().find(file => /^licen[sc]e/i.test(file));
  const text = file ? readFileSync(join(folder, file), "utf8").trim() : `Licence: ${license}`;
  return `${name} ${version} (${license})\n\n${text}\n`;
});
writeFileSync(join(here, "build/licences.txt"), texts.join(`\n${"-".repeat(80)}\n\n`));
for (const [path, { bytes }] of [...Object.entries(metafile.outputs), ...Object.entries(own.metafile.outputs)]) console.log(`${path}: ${bytes} bytes`);
