package service_test

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/reeveproject/reeve/plugins/consensus/internal/storetest"
)

// impostor answers at an address with the certificate of somebody else.
type impostor struct{ tried, believed atomic.Int32 }

func (i *impostor) sit(t *testing.T, address string, config *tls.Config) {
	t.Helper()
	server := config.Clone()
	server.ClientAuth = tls.RequireAnyClientCert
	var listener net.Listener
	storetest.Eventually(t, "the address is free", func() bool {
		var err error
		listener, err = net.Listen("tcp", address)
		return err == nil
	})
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			raw, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				defer raw.Close()
				conn := tls.Server(raw, server)
				ctx, cancel := context.WithTimeout(context.Background(), storetest.Bound)
				defer cancel()
				// With TLS 1.3, who connects has looked at the certificate when this is over.
				if conn.HandshakeContext(ctx) == nil {
					i.believed.Add(1)
				}
				i.tried.Add(1)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		serving.Wait()
	})
}

// TestImpostorAtAMembersAddress has a member that was removed take the address of another one over, and a member that of another member: nobody who connects to it takes it
// for the one whose address it is, and tells it anything.
func TestImpostorAtAMembersAddress(t *testing.T) {
	for name, whose := range map[string]string{"a removed member": "reeve-3", "another member": "reeve-1"} {
		t.Run(name, func(t *testing.T) {
			c, client := grown(t, "reeve-1", "reeve-2", "reeve-3")
			stolen := credentialsOf(t, c, whose)
			c.nodes["reeve-3"].stop()
			c.want(client, "reeve-1", "reeve-2")
			c.await(client, "the removal is done", settled("reeve-1", "reeve-2"))
			c.nodes["reeve-2"].stop()
			var sits impostor
			sits.sit(t, c.places["reeve-2"], stolen)
			storetest.Eventually(t, "the other member tries to reach the one whose address it is", func() bool { return sits.tried.Load() >= 10 })
			if n := sits.believed.Load(); n != 0 {
				t.Errorf("%d of %d connections were made with the impostor", n, sits.tried.Load())
			}
		})
	}
}
