// Package curatortest is a curator for tests, which hands out snapshots to the role archive of its node.
package curatortest

import (
	"slices"
	"sync"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"context"

	archivev1 "github.com/reeveproject/reeve/proto/reeve/archive/v1"
	"github.com/reeveproject/reeve/proto/snapshot/snapshottest"
	"github.com/reeveproject/reeve/sdk/role"
	"github.com/reeveproject/reeve/sdk/roletest"
)

// Curator hands out what the test has added.
type Curator struct {
	archivev1.UnimplementedArchiveServiceServer

	mu    sync.Mutex
	names []string
	files map[string][]byte
	lost  []*archivev1.Snapshot
	// Breaks is how often a file breaks off in its middle.
	breaks int
}

// Start serves a curator on a host until the test ends.
func Start(t testing.TB, host *roletest.Host) *Curator {
	t.Helper()
	instance := host.Instance(t, "curator")
	listener, err := instance.Listen(t.Context(), archivev1.Endpoint, role.AllowRoles(archivev1.Role))
	if err != nil {
		t.Fatal(err)
	}
	c := &Curator{files: make(map[string][]byte)}
	server := grpc.NewServer(grpc.Creds(role.Credentials()))
	archivev1.RegisterArchiveServiceServer(server, c)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		server.Stop()
		<-ended
	})
	instance.Ready()
	return c
}

// Add adds a good snapshot with a payload, and returns its file.
func (c *Curator) Add(t testing.TB, name string, payload []byte) []byte {
	t.Helper()
	file := append(snapshottest.Rehearsed(t, payload).Marshal(), payload...)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = append([]string{name}, c.names...)
	c.files[name] = file
	return file
}

// Remove removes a snapshot.
func (c *Curator) Remove(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names = slices.DeleteFunc(c.names, func(one string) bool { return one == name })
	delete(c.files, name)
}

// Lose has a snapshot listed that is not there.
func (c *Curator) Lose(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := len(c.files[name])
	delete(c.files, name)
	c.lost = append(c.lost, &archivev1.Snapshot{Name: name, Bytes: int64(size)})
	c.names = slices.DeleteFunc(c.names, func(one string) bool { return one == name })
}

// Break has the next answers of files break off in their middle.
func (c *Curator) Break(times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.breaks = times
}

// Damage changes a byte of a file, of which the header does not know.
func (c *Curator) Damage(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := slices.Clone(c.files[name])
	file[len(file)-1] ^= 1
	c.files[name] = file
}

// ListSnapshots implements archivev1.ArchiveServiceServer.
func (c *Curator) ListSnapshots(context.Context, *archivev1.ListSnapshotsRequest) (*archivev1.ListSnapshotsResponse, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	response := &archivev1.ListSnapshotsResponse{Snapshots: slices.Clone(c.lost)}
	for _, name := range c.names {
		response.Snapshots = append(response.Snapshots, &archivev1.Snapshot{Name: name, Bytes: int64(len(c.files[name]))})
	}
	return response, nil
}

// GetSnapshot implements archivev1.ArchiveServiceServer.
func (c *Curator) GetSnapshot(request *archivev1.GetSnapshotRequest, stream grpc.ServerStreamingServer[archivev1.GetSnapshotResponse]) error {
	c.mu.Lock()
	file, breaks := c.files[request.GetName()], c.breaks > 0
	if breaks {
		c.breaks--
	}
	c.mu.Unlock()
	if file == nil {
		return status.Error(codes.NotFound, "there is no such snapshot on this node")
	}
	rest := file[request.GetOffset():]
	for n := 0; len(rest) > 0; n++ {
		if breaks && n > 0 {
			return status.Error(codes.Unavailable, "the curator stops")
		}
		part := rest[:min(len(rest), 64<<10)]
		if err := stream.Send(&archivev1.GetSnapshotResponse{Data: part}); err != nil {
			return err
		}
		rest = rest[len(part):]
	}
	return nil
}
