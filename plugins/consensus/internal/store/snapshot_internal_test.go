package store

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// TestACopyRests holds that a copy leaves most of the time to the store's users, and that one which nobody waits for does not rest to its end.
func TestACopyRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		const work = 10 * time.Millisecond
		began := time.Now()
		copied := &paced{ctx: ctx, to: laborious(work), began: began}
		half := make([]byte, workBytes/2)
		for range 4 {
			if _, err := copied.Write(half); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(began); took != 4*work*(1+restShare) {
			t.Errorf("4 writes of %s each take %s, want %s", work, took, 4*work*(1+restShare))
		}
		began = time.Now()
		time.AfterFunc(3*work, cancel)
		if _, err := copied.Write(append(half, half...)); !errors.Is(err, context.Canceled) || time.Since(began) != 3*work {
			t.Errorf("a copy that nobody waits for: %v after %s", err, time.Since(began))
		}
	})
}

// TestACopyThatIsShortOfTimeDoesNotRest holds that a copy whose work needs most of its time is complete within that.
func TestACopyThatIsShortOfTimeDoesNotRest(t *testing.T) {
	const pieces, bound = 100, 1000 * time.Millisecond
	for _, work := range []time.Duration{time.Millisecond, 4 * time.Millisecond, 9 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			began := time.Now()
			copied := &paced{ctx: ctx, to: laborious(work), began: began, left: pieces * workBytes}
			for range pieces {
				if _, err := copied.Write(make([]byte, workBytes)); err != nil {
					t.Fatalf("pieces that take %s each are not copied within %s: %v", work, bound, err)
				}
			}
			if took := time.Since(began); took >= bound || work == time.Millisecond && took != pieces*work*(1+restShare) {
				t.Errorf("%d pieces that take %s each: took %s", pieces, work, took)
			}
		})
	}
}

// laborious takes so long for each write.
type laborious time.Duration

func (l laborious) Write(part []byte) (int, error) {
	time.Sleep(time.Duration(l))
	return len(part), nil
}
