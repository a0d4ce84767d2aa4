package hostapi

import (
	"fmt"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"

	hostv1 "github.com/reeveproject/reeve/proto/reeve/host/v1"
	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/held"
)

// mostUnread is how many bytes of directories that are not the newest any more may wait to be read, in all host sockets together. A directory may have 12 MiB, so a role that is two of them late is still sent them.
const mostUnread = 32 << 20

// directories is what WatchDirectory sends. The directory is encoded once, whoever reads it. gRPC keeps what a role does not read, so one that reads nothing would make the core hold a directory in each stream: the
// connections on which the oldest ones wait are closed.
type directories struct {
	from *event.Value[*hostv1.Directory]

	mu     sync.Mutex
	newest *edition
	// late are the former ones that somebody has not read yet, the oldest first, and unread their bytes.
	late   []*edition
	unread int
}

func newDirectories(from *event.Value[*hostv1.Directory]) *directories {
	return &directories{from: from, newest: &edition{}}
}

// edition is one directory; its number is 0 before there is one.
type edition struct {
	number  uint64
	of      *hostv1.Directory // nil if it is not the newest any more
	encoded []byte
	readers map[*reading]struct{}
}

// reading is an edition that is sent on a connection and was not read yet.
type reading struct {
	edition *edition
	by      *guest
}

// next returns the newest directory for a connection, and its number. It returns no message if that number is last.
func (d *directories) next(by *guest, last uint64) (*held.Message, uint64, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	// Not what the stream has seen, which may be older than what another one has.
	now, _ := d.from.Get()
	if err := d.renew(now); err != nil {
		return nil, 0, err
	}
	if d.newest.number == last {
		return nil, last, nil
	}
	began := &reading{d.newest, by}
	d.newest.readers[began] = struct{}{}
	return &held.Message{Own: d.newest.encoded, Sent: func() { d.read(began) }}, d.newest.number, nil
}

// renew makes a directory the newest edition. mu is held.
func (d *directories) renew(now *hostv1.Directory) error {
	former := d.newest
	switch {
	case former.number == 0:
	case former.of == now:
		return nil
	case proto.Equal(former.of, now):
		former.of = now
		return nil
	}
	encoded, err := held.Encode(&hostv1.WatchDirectoryResponse{Directory: now})
	if err != nil {
		return fmt.Errorf("hostapi: encode the directory for roles: %w", err)
	}
	d.newest = &edition{number: former.number + 1, of: now, encoded: encoded, readers: make(map[*reading]struct{})}
	former.of = nil
	if len(former.readers) == 0 {
		return nil
	}
	d.late = append(d.late, former)
	d.unread += len(former.encoded)
	for d.unread > mostUnread {
		for late := range d.late[0].readers {
			_ = late.by.UnixConn.Close() // the server hears of it, and closes it again
			d.drop(late.by)
			break
		}
	}
	return nil
}

// read takes note that an edition was read.
func (d *directories) read(r *reading) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gone(r)
}

// left takes note that a connection has ended.
func (d *directories) left(by *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.drop(by)
}

// drop forgets all that was not read on a connection. mu is held.
func (d *directories) drop(by *guest) {
	for _, e := range append(slices.Clone(d.late), d.newest) {
		for r := range e.readers {
			if r.by == by {
				d.gone(r)
			}
		}
	}
}

// gone counts one reader less. mu is held.
func (d *directories) gone(r *reading) {
	delete(r.edition.readers, r)
	if len(r.edition.readers) > 0 {
		return
	}
	if i := slices.Index(d.late, r.edition); i >= 0 {
		d.unread -= len(r.edition.encoded)
		d.late = slices.Delete(d.late, i, i+1)
	}
}
