package usage

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"go.etcd.io/etcd/server/v3/storage/mvcc"
)

// pages are the keys of all users as they were added up, page by page: each page has the keys from its first one to the first one of the next, as they were at its revision.
type pages []page

type page struct {
	from     []byte
	revision int64
}

// unread is the revision of the last page as long as it was not read: whatever changes in it until then will be among what is read.
const unread = math.MaxInt64

// have reports whether a change of a key is among what was added up, or will be.
func (p pages) have(key []byte, revision int64) bool {
	n, found := slices.BinarySearchFunc(p, key, func(page page, key []byte) int { return bytes.Compare(page.from, key) })
	if !found {
		n--
	}
	return n >= 0 && revision <= p[n].revision
}

// last is the newest revision that is among what was added up.
func (p pages) last() int64 {
	if len(p) == 0 {
		return 0
	}
	return p[len(p)-1].revision
}

// scan is what is added up of the store, and kept up to date meanwhile.
type scan struct {
	pages    pages
	sums     map[string]Total
	attached map[int64]int64
}

// read adds up the next page, as it is now. It must not be older than the changes of which etcd has told, which it does a moment before they can be read.
func (s *scan) read(ctx context.Context, kv mvcc.KV, told int64) error {
	last := len(s.pages) - 1
	found, err := readPage(ctx, kv, s.pages[last].from, usersEnd, mvcc.RangeOptions{Limit: pageKeys})
	if err != nil || found.Rev < told {
		return err
	}
	for _, kv := range found.KVs {
		if user := UserOf(kv.Key); user != nil {
			s.sums[string(user)] = s.sums[string(user)].plus(Total{Bytes: sizeOf(kv), Keys: 1})
			add(s.attached, kv.Lease, 1)
		}
	}
	s.pages[last].revision = found.Rev
	if last > 0 && s.pages[last-1].revision == found.Rev { // one page with the one before
		s.pages = s.pages[:last]
	}
	if len(found.KVs) == pageKeys {
		s.pages = append(s.pages, page{append(bytes.Clone(found.KVs[pageKeys-1].Key), 0), unread})
	}
	return nil
}

// scan adds everything up while it follows the store: so it needs no more history than to follow the store, however much is stored.
func (c *Counter) scan(ctx context.Context) error {
	told := c.config.KV.Rev()
	stream, err := c.watch(ctx, 0)
	if err != nil {
		return err
	}
	defer stream.Close()
	document, err := valueOf(ctx, c.config.KV, c.document)
	if err != nil {
		return fmt.Errorf("read what the users may have: %w", err)
	}
	c.takeDocument(document)
	s := scan{pages: pages{{usersPrefix, unread}}, sums: make(map[string]Total), attached: make(map[int64]int64)}
	for s.pages.last() == unread {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case change, ok := <-stream.Chan():
			deltas, err := c.deltas(ctx, nil, change, ok, s.pages)
			if err != nil {
				return err
			}
			for _, d := range deltas {
				s.sums[d.user] = s.sums[d.user].plus(d.stored)
				d.attach(s.attached)
			}
			if last := len(change.Events); last > 0 {
				told = change.Events[last-1].Kv.ModRevision
			}
		default:
			if err := s.read(ctx, c.config.KV, told); err != nil {
				return err
			}
		}
	}
	c.scanned = s.pages
	c.mu.Lock()
	defer c.mu.Unlock()
	for user, a := range c.accounts {
		a.stored = s.sums[user]
		delete(s.sums, user)
	}
	for user, stored := range s.sums {
		c.accounts[user] = &account{stored: stored}
	}
	c.attached = s.attached
	c.reach(told)
	return nil
}
