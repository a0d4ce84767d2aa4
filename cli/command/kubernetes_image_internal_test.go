package command

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/reeveproject/reeve/cli/output"
)

// TestReadersOfWhatIsReadOnce: all get all of it, one that is closed holds up nobody, and what breaks off is nobody's whole.
func TestReadersOfWhatIsReadOnce(t *testing.T) {
	content := bytes.Repeat([]byte("what an archive is like\n"), 50_000)
	for name, test := range map[string]struct {
		from io.Reader
		err  error
	}{
		"to its end":      {bytes.NewReader(content), nil},
		"in small pieces": {iotest.OneByteReader(bytes.NewReader(content[:5000])), nil},
		"broken off":      {io.MultiReader(bytes.NewReader(content), iotest.ErrReader(errors.New("the pipe is broken"))), errors.New("the pipe is broken")},
	} {
		t.Run(name, func(t *testing.T) {
			images := &archive{name: "-", from: test.from}
			readers := images.readers(3)
			_ = readers[1].Close()
			var read sync.WaitGroup
			for _, i := range []int{0, 2} {
				read.Go(func() {
					got, err := io.ReadAll(readers[i])
					if (err == nil) != (test.err == nil) || err != nil && err.Error() != test.err.Error() {
						t.Errorf("reader %d: %v", i, err)
					}
					if !bytes.HasPrefix(content, got) || len(got) < 5000 {
						t.Errorf("reader %d got %d bytes", i, len(got))
					}
				})
			}
			read.Wait()
		})
	}
}

func TestReadersOfAFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.tar")
	if err := os.WriteFile(file, []byte("what an archive is like"), 0o600); err != nil {
		t.Fatal(err)
	}
	images, err := (&commands{}).openArchive(file)
	if err != nil {
		t.Fatal(err)
	}
	defer images.close()
	for i, reader := range images.readers(2) {
		if got, err := io.ReadAll(reader); err != nil || string(got) != "what an archive is like" {
			t.Errorf("reader %d: %q, %v", i, got, err)
		}
	}
}

func TestProgressOfAnUpload(t *testing.T) {
	one := &upload{node: &output.ImageLoadNode{NodeID: "reeve-00112233445566778899aabbccddeeff"}}
	known, unknown := &archive{file: os.Stdin, size: 8 << 20}, &archive{}
	for _, test := range []struct {
		sent    int64
		done    bool
		archive *archive
		want    string
	}{
		{0, false, known, "0 %"}, {2 << 20, false, known, "25 %"}, {8 << 20, false, known, "unpacks"}, {8 << 20, true, known, "done"},
		{3 << 20, false, unknown, "3 MiB"}, {3 << 20, true, unknown, "done"},
	} {
		one.sent.Store(test.sent)
		one.done.Store(test.done)
		if got := one.progress(test.archive); got != "reeve-001122 "+test.want {
			t.Errorf("%d bytes: %q", test.sent, got)
		}
	}
	one.node.NodeID = "n"
	if got := one.progress(known); !strings.HasPrefix(got, "n ") {
		t.Errorf("a short name is %q", got)
	}
}
