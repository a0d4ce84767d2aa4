package machine

import (
	"bytes"
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
)

// wantedModules are the drivers of the machine and what LUKS2, fscrypt and loop images need. What is built into the kernel has no file, and needs none.
var wantedModules = []string{
	"virtio_pci", "virtio_blk", "virtio_console", "qemu_fw_cfg", "tpm_tis", "tpm_crb", "ext4", "loop",
	"dm_mod", "dm_crypt", "aesni_intel", "aes_generic", "xts", "ecb", "cbc", "cts", "essiv", "sha256_generic", "sha512_generic", "hmac",
	"af_alg", "algif_skcipher", "algif_hash",
}

// orderedModules returns the files of the wanted modules and of those that they depend on, each after what it needs. The package of a kernel has no modules.dep,
// which is made where it is installed: the modules themselves say what they depend on.
func orderedModules(directory string, wanted []string) ([]string, error) {
	files := make(map[string]string)
	err := filepath.WalkDir(directory, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && strings.HasSuffix(path, ".ko") {
			files[moduleName(strings.TrimSuffix(filepath.Base(path), ".ko"))] = path
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("there are no modules in %s", directory)
	}
	var ordered []string
	seen := make(map[string]bool)
	var add func(name string) error
	add = func(name string) error {
		file, ok := files[name]
		if !ok || seen[name] {
			return nil
		}
		seen[name] = true
		needed, err := dependencies(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		for _, other := range needed {
			if err := add(other); err != nil {
				return err
			}
		}
		ordered = append(ordered, file)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return ordered, nil
}

// dependencies returns the names of the modules that a module says it depends on, those to be loaded before it if they are there among them.
func dependencies(file string) ([]string, error) {
	module, err := elf.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = module.Close() }()
	section := module.Section(".modinfo")
	if section == nil {
		return nil, fmt.Errorf("it has no section .modinfo")
	}
	content, err := section.Data()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, entry := range bytes.Split(content, []byte{0}) {
		key, value, _ := strings.Cut(string(entry), "=")
		switch key {
		case "depends":
			names = append(names, strings.FieldsFunc(value, func(r rune) bool { return r == ',' })...)
		case "softdep":
			if before, ok := strings.CutPrefix(value, "pre: "); ok {
				before, _, _ = strings.Cut(before, "post:")
				names = append(names, strings.Fields(before)...)
			}
		}
	}
	for i := range names {
		names[i] = moduleName(names[i])
	}
	return names, nil
}

// moduleName is the name by which modules name each other: files have either sign.
func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }
