// Writes build/protocols.json: the protocols as protobuf.js has them in memory, since the executable has no .proto files with it.
import fs from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import protobuf from 'protobufjs';

const here = path.dirname(path.dirname(fileURLToPath(import.meta.url)));
// In the repository of Reeve they lie beside the examples; elsewhere, copy the directory and name it.
const reeve = process.env.REEVE_PROTO ?? path.join(here, '..', '..', 'proto');

export function writeProtocols() {
  const root = new protobuf.Root();
  root.resolvePath = (_, target) => {
    if (path.isAbsolute(target) || protobuf.common.get(target)) {
      return target;
    }
    if (target === 'google/protobuf/descriptor.proto') {
      return fileURLToPath(import.meta.resolve('protobufjs/google/protobuf/descriptor.proto'));
    }
    return path.join(reeve, target);
  };
  root.loadSync([
    path.join(reeve, 'reeve/role/v1/role.proto'), path.join(reeve, 'reeve/host/v1/host.proto'),
    path.join(here, 'proto/etcd.proto'), path.join(here, 'proto/status.proto'),
  ]);
  root.resolveAll();
  fs.mkdirSync(path.join(here, 'build'), { recursive: true });
  fs.writeFileSync(path.join(here, 'build/protocols.json'), JSON.stringify(root.toJSON()));
  // The loader and the libraries that this Node.js is linked to: the manifest asks for them, and they are those of this machine.
  const libraries = process.report.getReport().sharedObjects.filter((name) => path.isAbsolute(name)).sort();
  fs.writeFileSync(path.join(here, 'build/libraries.json'), JSON.stringify(libraries));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  writeProtocols();
}
