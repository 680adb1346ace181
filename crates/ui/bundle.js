// Bundles third parties into build/lib, and the texts of their licences into build/licences.txt.
// Entries are the files of web/lib: what a bundle exports is what its entry exports, and tsc checks the entry.
// Invariant: equal packages (package-lock.json) give equal bytes.
// Not here: our modules, which browsers load as they are.
import { readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const here = dirname(fileURLToPath(import.meta.url));
rmSync(join(here, "build/lib"), { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: here,
  entryPoints: ["web/lib/ui.js", "web/lib/editor.js", "web/lib/ui.css"],
  outdir: "build/lib",
  bundle: true,
  format: "esm",
  target: "es2022",
  minify: true,
  legalComments: "none",
  metafile: true,
  logLevel: "warning",
});

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
for (const [path, { bytes }] of Object.entries(metafile.outputs)) console.log(`${path}: ${bytes} bytes`);
