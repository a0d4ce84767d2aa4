package restore

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"

	"filippo.io/age"
	"github.com/klauspost/compress/zstd"

	"github.com/reeveproject/reeve/proto/plainfile"
	consensusv1 "github.com/reeveproject/reeve/proto/reeve/consensus/v1"
	"github.com/reeveproject/reeve/proto/snapshot"
)

const (
	// maxWindow bounds the memory that opening a payload takes. A payload that Reeve made needs 1 MiB.
	maxWindow = 8 << 20
	// partSize is how many bytes are sent in one message.
	partSize = 256 << 10
)

// Snapshot is a file of which all was checked.
type Snapshot struct {
	*snapshot.Header
	path string
	key  *Key
}

// Progress is told how many bytes of the database were read, of how many; nil: nobody is.
type Progress func(done, all int64)

// Open reads all of a file and checks it: its signature, its size and hash, and, with the recovery key if it is sealed, the database in it. check is told the header before anything else is read, and
// its error is returned.
func Open(ctx context.Context, path string, key *Key, check func(*snapshot.Header) error, progress Progress) (*Snapshot, error) {
	s := &Snapshot{path: path, key: key}
	err := s.read(ctx, func(header *snapshot.Header) error {
		s.Header = header
		return check(header)
	}, progress.over(io.Discard))
	if err != nil {
		return nil, fmt.Errorf("cannot restore from %s: %w", path, err)
	}
	return s, nil
}

// Send sends the snapshot to the role that provides the store. The role may need nothing of it, or not all.
func (s *Snapshot) Send(ctx context.Context, to consensusv1.ConsensusServiceClient, progress Progress) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := to.ReceiveSnapshot(ctx)
	if err != nil {
		return err
	}
	line, err := s.Manifest.Marshal()
	if err != nil {
		return err
	}
	if err := stream.Send(&consensusv1.ReceiveSnapshotRequest{Part: &consensusv1.ReceiveSnapshotRequest_Manifest{Manifest: line}}); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	parts := bufio.NewWriterSize(sending{stream}, partSize)
	err = s.read(ctx, func(header *snapshot.Header) error {
		if header.Manifest.PayloadSHA256 != s.Manifest.PayloadSHA256 {
			return errors.New("it is another file now than the one that was checked")
		}
		return nil
	}, progress.over(parts))
	if err == nil {
		err = parts.Flush()
	}
	// io.EOF: the role has answered, and says why it reads no more.
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("cannot restore from %s: %w", s.path, err)
	}
	_, err = stream.CloseAndRecv()
	return err
}

// sending writes into a stream.
type sending struct {
	stream consensusv1.ConsensusService_ReceiveSnapshotClient
}

// Write implements io.Writer.
func (s sending) Write(part []byte) (int, error) {
	for rest := part; len(rest) > 0; {
		next := rest[:min(len(rest), partSize)]
		rest = rest[len(next):]
		if err := s.stream.Send(&consensusv1.ReceiveSnapshotRequest{Part: &consensusv1.ReceiveSnapshotRequest_Data{Data: next}}); err != nil {
			return 0, err
		}
	}
	return len(part), nil
}

// over tells of the progress of what is written to another writer.
func (p Progress) over(to io.Writer) func(all int64) io.Writer {
	return func(all int64) io.Writer {
		done := int64(0)
		return writerFunc(func(part []byte) (int, error) {
			n, err := to.Write(part)
			if done += int64(n); p != nil {
				p(done, all)
			}
			return n, err
		})
	}
}

type writerFunc func([]byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(part []byte) (int, error) { return f(part) }

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(into []byte) (int, error) { return f(into) }

// read reads all of the file, checks it, and writes the database and its hash to a writer.
func (s *Snapshot) read(ctx context.Context, check func(*snapshot.Header) error, to func(all int64) io.Writer) error {
	file, err := plainfile.Open(s.path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // it was only read
	buffered := bufio.NewReaderSize(file, 64<<10)
	header, err := snapshot.ReadHeader(buffered)
	if err != nil {
		return err
	}
	if err := check(header); err != nil {
		return err
	}
	// What the file is by itself comes first: whoever opens one that is cut off is to hear that, and not what its key makes of it.
	var broken error
	from := header.Payload(buffered)
	payload := readerFunc(func(into []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		n, err := from.Read(into)
		if err != nil && !errors.Is(err, io.EOF) {
			broken = err
		}
		return n, err
	})
	wrote, err := unpack(payload, header.Manifest, s.key, to(header.Manifest.DatabaseSize))
	if wrote == nil {
		// The rest of the file says whether it is whole.
		if _, rest := io.Copy(io.Discard, payload); rest != nil {
			broken = rest
		}
	}
	return cmp.Or(wrote, broken, err)
}

// unpack writes the database in a payload, and its hash, to a writer. wrote is the error of that; err says what is wrong with the payload.
func unpack(payload io.Reader, manifest *snapshot.Manifest, key *Key, to io.Writer) (wrote, err error) {
	if manifest.Recipient != "" {
		if payload, err = key.open(payload, manifest.Recipient); err != nil {
			return nil, err
		}
	}
	content, err := zstd.NewReader(payload, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, fmt.Errorf("its payload cannot be decompressed: %w", err)
	}
	defer content.Close()
	hash := sha256.New()
	out := &failing{to: to}
	if _, err := io.CopyN(io.MultiWriter(hash, out), content, manifest.DatabaseSize); err != nil {
		if out.err != nil {
			return out.err, nil
		}
		return nil, fmt.Errorf("the database in it ends too early: %w", err)
	}
	sum := hash.Sum(nil)
	end := make([]byte, sha256.Size+1)
	if n, err := io.ReadFull(content, end); n != sha256.Size || !errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, errors.New("the database in it does not end as the manifest says")
	}
	if fmt.Sprintf("%x", sum) != manifest.DatabaseSHA256 || string(end[:sha256.Size]) != string(sum) {
		return nil, errors.New("the database in it has another hash than the manifest says")
	}
	_, _ = out.Write(sum)
	return out.err, nil
}

// failing remembers why a writer failed.
type failing struct {
	to  io.Writer
	err error
}

// Write implements io.Writer.
func (f *failing) Write(part []byte) (int, error) {
	n, err := f.to.Write(part)
	if err != nil {
		f.err = err
	}
	return n, err
}

// maxKey bounds what is read as a key: one of age needs some 200 bytes, with its comments.
const maxKey = 64 << 10

// Key is the private half of a recovery key; nil: there is none.
type Key struct{ identities []age.Identity }

// ReadKeyFile reads the recovery key in a file.
func ReadKeyFile(path string) (*Key, error) {
	file, err := plainfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("cannot read the recovery key: %w", err)
	}
	defer func() { _ = file.Close() }() // it was only read
	return ReadKey(file, path)
}

// ReadKey reads the recovery key up to the end of a stream. what is where it comes from, for errors.
func ReadKey(from io.Reader, what string) (*Key, error) {
	identities, err := age.ParseIdentities(io.LimitReader(from, maxKey))
	if err != nil {
		// The parser's error is left out: it could quote the key.
		return nil, fmt.Errorf("%s holds no recovery key that can be read: it is what `reeve recovery-key new` or age-keygen writes, with a line that begins with AGE-SECRET-KEY-1", what)
	}
	return &Key{identities}, nil
}

func (k *Key) open(payload io.Reader, recipient string) (io.Reader, error) {
	if k == nil {
		return nil, fmt.Errorf("it is sealed to %s: give the recovery key of that with --recovery-key", recipient)
	}
	plain, err := age.Decrypt(payload, k.identities...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("it is sealed to %s, and the recovery key is another one: give the key whose public half is %[1]s", recipient)
	}
	return plain, err
}
