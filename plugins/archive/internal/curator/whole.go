package curator

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/reeveproject/reeve/proto/snapshot"
)

// whole reads the file of a snapshot, and checks it: whoever stops after the last byte has all of a file that is good.
type whole struct {
	from io.Reader
	left int64
	end  error
}

// newWhole reads the header of a file of so many bytes.
func newWhole(from io.Reader, size int64) (*whole, error) {
	buffered := bufio.NewReader(from)
	header, err := snapshot.ReadHeader(buffered)
	if err != nil {
		return nil, err
	}
	if header.Size() != size {
		return nil, fmt.Errorf("its header says that it has %d bytes, and the curator has listed %d", header.Size(), size)
	}
	return &whole{from: io.MultiReader(bytes.NewReader(header.Marshal()), header.Payload(buffered)), left: size}, nil
}

// Read implements io.Reader.
func (w *whole) Read(into []byte) (int, error) {
	if w.end != nil || len(into) == 0 {
		return 0, w.end
	}
	n, err := w.from.Read(into)
	w.left -= int64(n)
	if w.left == 0 && err == nil {
		// The hash is compared when the end is read. Nobody is given the last byte before that.
		if _, err = w.from.Read(make([]byte, 1)); err == nil {
			err = io.ErrNoProgress
		}
	}
	if w.end = err; err != nil && err != io.EOF {
		return 0, err
	}
	return n, nil
}
