package store

import (
	"context"
	"io"
	"time"
)

// resting is a database that is read at a pace.
type resting struct {
	ctx      context.Context
	database io.WriterTo
	size     int64
}

// WriteTo implements io.WriterTo.
func (r resting) WriteTo(to io.Writer) (int64, error) {
	return r.database.WriteTo(&paced{ctx: r.ctx, to: to, began: time.Now(), left: r.size})
}

// paced rests now and then.
type paced struct {
	ctx   context.Context
	to    io.Writer
	began time.Time
	bytes int // since it last rested
	// left is how many bytes are left to copy, and done and worked are how many were copied before it last rested, in which time.
	left, done int64
	worked     time.Duration
}

// Write implements io.Writer.
func (p *paced) Write(part []byte) (int, error) {
	n, err := p.to.Write(part)
	if p.bytes += n; p.bytes < workBytes || err != nil {
		return n, err
	}
	rest := time.NewTimer(p.rest(time.Since(p.began)))
	defer rest.Stop()
	select {
	case <-rest.C:
	case <-p.ctx.Done():
		return n, p.ctx.Err()
	}
	p.began, p.bytes = time.Now(), 0
	return n, nil
}

// rest returns how long to rest after so much work.
func (p *paced) rest(took time.Duration) time.Duration {
	p.worked += took
	p.done += int64(p.bytes)
	p.left -= int64(p.bytes)
	rest := restShare * took
	if end, bounded := p.ctx.Deadline(); bounded {
		needed := time.Duration(float64(p.worked) * float64(p.left) / float64(p.done))
		rest = min(rest, time.Until(end)/restReserve-needed)
	}
	return rest
}
