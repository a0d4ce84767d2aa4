package listening

import (
	"errors"
	"net"
	"testing"

	"github.com/reeveproject/reeve/sdk/event"
	"github.com/reeveproject/reeve/sdk/leaktest"
)

func TestMain(m *testing.M) { leaktest.VerifyTestMain(m) }

type said struct {
	address string
	problem error
}

// An address that somebody else has is taken as soon as it is free, and again when the listener fails.
func TestAddressThatIsTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := taken.Addr().String()
	var told event.Value[said]
	l, err := Listen(address, func(address string, problem error) { told.Set(said{address, problem}) })
	if err != nil {
		t.Fatal(err)
	}
	if now, _ := told.Get(); now.problem == nil || now.address != "" {
		t.Errorf("told %v", now)
	}
	accepted := make(chan error)
	go func() {
		for {
			conn, err := l.Accept()
			if err == nil {
				err = conn.Close()
			}
			accepted <- err
			if err != nil {
				return
			}
		}
	}()
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := told.Wait(t.Context(), func(now said) bool { return now == said{address: address} }); err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-accepted, conn.Close()); err != nil {
			t.Fatal(err)
		}
		// It fails.
		if err := l.opened().Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := told.Wait(t.Context(), func(now said) bool { return now.problem != nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := l.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	if err := <-accepted; !errors.Is(err, net.ErrClosed) {
		t.Errorf("after its end: %v", err)
	}
}

func TestNoAddress(t *testing.T) {
	t.Parallel()
	if _, err := Listen("nonsense", func(string, error) {}); err == nil {
		t.Error("it listens")
	}
}
