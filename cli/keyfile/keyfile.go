package keyfile

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/reeveproject/reeve/cli/fault"
)

const (
	privateBlock = "PRIVATE KEY"
	publicBlock  = "PUBLIC KEY"
	// maxFile bounds a file that is read: a key needs less than 200 bytes.
	maxFile = 64 << 10
)

// Create makes a new key in a file that only its owner may read, and returns its public half. A file that is there is never touched.
func Create(path string) (ed25519.PublicKey, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fault.Wrap(fault.Failed, err, "no key can be made", "")
	}
	text, err := Encode(private)
	if err != nil {
		return nil, err
	}
	return public, Keep(path, "the key", text)
}

// Encode returns a private key as Read reads it.
func Encode(key ed25519.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fault.New(fault.Failed, "cannot write the key", "")
	}
	return pem.EncodeToMemory(&pem.Block{Type: privateBlock, Bytes: der}), nil
}

// Keep writes a secret to a new file that only its owner may read. It never changes a file that exists. what names the secret in errors.
func Keep(path, what string, text []byte) error {
	// Not by a draft and a link: the file system of a stick on which a key is kept offline may have no links.
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return fault.New(fault.Refused, path+" is there already, and is never overwritten", "Give another file.")
	}
	if err != nil {
		return fault.File(err, "cannot keep "+what, "Give a file in a directory that is there and that you may write.")
	}
	_, err = file.Write(text)
	if err = errors.Join(err, file.Chmod(0o600), file.Sync(), file.Close()); err == nil {
		err = syncDirectory(filepath.Dir(path))
	}
	if err != nil {
		// Half a key is of no use.
		return fault.File(errors.Join(err, os.Remove(path)), "cannot keep "+what+" in "+path, "Give another file.")
	}
	return nil
}

func syncDirectory(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	err = dir.Sync()
	if errors.Is(err, syscall.EINVAL) {
		err = nil // Some file systems cannot, and have nothing to lose there.
	}
	return errors.Join(err, dir.Close())
}

// Read reads a private key. what says whose it is, for errors ("the owner key"); flag is the one that names the file.
func Read(path, what, flag string) (ed25519.PrivateKey, error) {
	data, err := readAll(path)
	if err != nil {
		return nil, fault.File(err, "cannot read "+what, "Give the file with "+flag+".")
	}
	form := strings.ToUpper(what[:1]) + what[1:] + " is an Ed25519 key in PKCS #8."
	block, _ := pem.Decode(data)
	if block == nil || block.Type != privateBlock {
		return nil, fault.New(fault.Usage, path+" holds no PEM block "+privateBlock, form)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		// The error of the parser is left out: it could quote the key.
		return nil, fault.New(fault.Usage, path+" holds a "+privateBlock+" that cannot be parsed", form)
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fault.New(fault.Usage, fmt.Sprintf("%s holds a %T", path, parsed), form)
	}
	return key, nil
}

// Text is how a public key is written in a line: base64 of its 32 bytes.
func Text(key ed25519.PublicKey) string { return base64.StdEncoding.EncodeToString(key) }

// publicForm is the advice for everything that is no public key.
const publicForm = "A public key is what `reeve operator key` prints (base64 of 32 bytes), or a file with that or with a PEM block " + publicBlock + "."

// Public returns the public key that an argument means: the key itself as Text writes it, or the name of a file that holds it so, or as PEM.
func Public(argument string) (ed25519.PublicKey, error) {
	if key, ok := decode(argument); ok {
		return key, nil
	}
	data, err := readAll(argument)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENAMETOOLONG) {
		// It could be a private key that was given by mistake: it is not repeated.
		return nil, fault.New(fault.NotFound, "the public key that was given is neither a key nor the name of a file", publicForm)
	}
	if err != nil {
		return nil, fault.File(err, "cannot read the public key", publicForm)
	}
	if key, ok := decode(string(data)); ok {
		return key, nil
	}
	block, _ := pem.Decode(data)
	switch {
	case block != nil && block.Type == privateBlock:
		return nil, fault.New(fault.Usage, argument+" holds a private key, which must stay secret",
			"Give the public half: `reeve operator key` printed it, and `openssl pkey -pubout` does.")
	case block == nil || block.Type != publicBlock:
		return nil, fault.New(fault.Usage, argument+" holds no public key", publicForm)
	}
	parsed, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, fault.New(fault.Usage, argument+" holds a "+publicBlock+" that cannot be parsed", publicForm)
	}
	key, ok := parsed.(ed25519.PublicKey)
	if !ok {
		return nil, fault.New(fault.Usage, fmt.Sprintf("%s holds a %T, not an Ed25519 key", argument, parsed), publicForm)
	}
	return key, nil
}

// decode reads a key as Text writes it, also in the alphabet for URLs and file names.
func decode(text string) (ed25519.PublicKey, bool) {
	text = strings.TrimSpace(text)
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		if key, err := encoding.Strict().DecodeString(text); err == nil && len(key) == ed25519.PublicKeySize {
			return key, true
		}
	}
	return nil, false
}

// readAll reads a file of at most maxFile bytes.
func readAll(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err == nil && len(data) > maxFile {
		return nil, fmt.Errorf("%s is too large for a key", path)
	}
	return data, err
}
