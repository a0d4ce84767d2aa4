// Builds the plugin's executable: one file that is Node.js and the program in it. `npm run build -- FILE` writes it to FILE (build/beacon).
import { execFileSync } from 'node:child_process';
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import esbuild from 'esbuild';
import { inject } from 'postject';
import { writeProtocols } from './protocols.mjs';

const here = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
const at = (...names) => path.join(here, ...names);
// npm runs scripts in the package's directory, and says in which directory it was called.
const output = path.resolve(process.env.INIT_CWD ?? process.cwd(), process.argv[2] ?? at('build/beacon'));

writeProtocols();
esbuild.buildSync({
  entryPoints: [at('src/main.js')], outfile: at('build/beacon.js'), bundle: true, platform: 'node', target: 'node20', format: 'cjs', legalComments: 'none',
  logLevel: 'warning',
});
// Without a code cache: it saves some milliseconds of a start, and would give the executable another digest with every build.
fs.writeFileSync(at('build/sea.json'), JSON.stringify({ main: at('build/beacon.js'), output: at('build/sea.blob'), disableExperimentalSEAWarning: true }));
execFileSync(process.execPath, ['--experimental-sea-config', at('build/sea.json')], { stdio: ['ignore', 'ignore', 'inherit'] });

// quietly runs something that writes of its progress, and of the names of sections that it does not find and does not need.
async function quietly(run) {
  const { log, warn, error } = console;
  console.log = console.warn = console.error = () => {};
  try {
    await run();
  } finally {
    Object.assign(console, { log, warn, error });
  }
}

// It is made beside its place and moved there as a whole: a node may be importing what is there.
const made = `${output}.${process.pid}`;
fs.mkdirSync(path.dirname(output), { recursive: true });
try {
  fs.copyFileSync(process.execPath, made);
  fs.chmodSync(made, 0o755);
  // The fuse is a text in every Node.js executable; flipped, it says that there is a program.
  await quietly(() => inject(made, 'NODE_SEA_BLOB', fs.readFileSync(at('build/sea.blob')), { sentinelFuse: 'NODE_SEA_FUSE_fce680ab2cc467b6e072b8b5df1996b2' }));
  fs.renameSync(made, output);
} finally {
  fs.rmSync(made, { force: true });
}
console.log(`${path.relative(process.env.INIT_CWD ?? process.cwd(), output)}: ${fs.statSync(output).size >> 20} MiB, Node.js ${process.version}`);
