package snapshotfile

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/reeveproject/reeve/cli/fault"
	"github.com/reeveproject/reeve/cli/recovery"
	"github.com/reeveproject/reeve/proto/plainfile"
	"github.com/reeveproject/reeve/proto/snapshot"
)

// maxWindow bounds the memory that opening a payload takes. A payload that Reeve made needs 1 MiB.
const maxWindow = 8 << 20

// Inspect reads a file and checks all of it: its signature, its hash, and, with a key, or if it is not sealed, the hash of the database in it. opened says whether the latter was done. A
// file that is sealed is not opened without a key. from says where the key is from, for errors. check is told the header before anything else is read, and its error is returned: anybody can sign a
// file by a CA of their own.
func Inspect(ctx context.Context, path string, key *recovery.Key, from string, check func(*snapshot.Header) error) (header *snapshot.Header, opened bool, err error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, false, fault.File(err, "cannot read the snapshot", "Name the file that `reeve store snapshot` wrote.")
	}
	defer func() { _ = file.Close() }()
	buffered := bufio.NewReaderSize(file, 64<<10)
	header, err = snapshot.ReadHeader(buffered)
	if err != nil {
		return nil, false, unusable(ctx, path, err)
	}
	if err := check(header); err != nil {
		return nil, false, err
	}
	payload := until(ctx, header.Payload(buffered))
	if header.Manifest.Recipient != "" && key == nil {
		if _, err := io.Copy(io.Discard, payload); err != nil {
			return nil, false, unusable(ctx, path, err)
		}
		return header, false, nil
	}
	// What the file is by itself comes first: whoever opens one that is cut off is to hear that, and not what its key makes of it.
	read := &reading{from: payload}
	err = open(ctx, read, header, key)
	if err == nil || read.err == nil {
		if _, rest := io.Copy(io.Discard, payload); rest != nil {
			return nil, false, unusable(ctx, path, rest)
		}
	}
	if read.err != nil {
		return nil, false, unusable(ctx, path, read.err)
	}
	var wrong *recovery.WrongKeyError
	switch {
	case errors.As(err, &wrong):
		return nil, false, fault.New(fault.Refused, fmt.Sprintf("the recovery key in %s is a wrong one: %s is for %s, and this key is %s", from, path, header.Manifest.Recipient, wrong.Recipient),
			"Give the recovery key whose public half is "+header.Manifest.Recipient+".")
	case err != nil:
		return nil, false, unusable(ctx, path, err)
	}
	return header, true, nil
}

// until reads from a reader until ctx ends. A small file can hold much, so the end of what it is read from is not enough.
func until(ctx context.Context, from io.Reader) io.Reader {
	return readerFunc(func(into []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return from.Read(into)
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// open opens a payload and compares what is in it with the manifest.
func open(ctx context.Context, payload io.Reader, header *snapshot.Header, key *recovery.Key) error {
	if header.Manifest.Recipient != "" {
		plain, err := key.Decrypt(payload)
		if err != nil {
			return err
		}
		payload = plain
	}
	content, err := zstd.NewReader(payload, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return fmt.Errorf("its payload cannot be decompressed: %w", err)
	}
	defer content.Close()
	hash := sha256.New()
	if _, err := io.CopyN(hash, until(ctx, content), header.Manifest.DatabaseSize); err != nil {
		return fmt.Errorf("the database in it ends too early: %w", err)
	}
	sum := hash.Sum(nil)
	end := make([]byte, sha256.Size+1)
	if n, err := io.ReadFull(content, end); n != sha256.Size || !errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the database in it does not end as the manifest says")
	}
	if fmt.Sprintf("%x", sum) != header.Manifest.DatabaseSHA256 || string(end[:sha256.Size]) != string(sum) {
		return errors.New("the database in it has another hash than the manifest says")
	}
	return nil
}

// unusable says what is wrong with a file.
func unusable(ctx context.Context, path string, err error) error {
	if ctx.Err() != nil {
		return fault.Wrap(fault.Failed, ctx.Err(), "the check of "+path+" did not end", "")
	}
	next := "Take another copy of it, or another snapshot."
	var format *snapshot.FormatError
	switch {
	case errors.As(err, &format):
		next = ""
	case errors.Is(err, snapshot.ErrNone):
		next = "Name the file that `reeve store snapshot` wrote."
	}
	return fault.Wrap(fault.Failed, err, path+" is not a snapshot that can be used", next)
}
