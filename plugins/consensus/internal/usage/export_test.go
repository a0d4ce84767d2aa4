package usage

import "go.etcd.io/etcd/server/v3/storage/mvcc"

// Paced is a Counter that only knows how fast users may write.
func Paced(pace Pace) *Counter {
	return &Counter{config: Config{Pace: pace}, accounts: make(map[string]*account)}
}

// Leased is a Counter that only knows the leases of ant, which may have so many.
func Leased(quotaOfAnt int64, list func() ([]int64, error)) *Counter {
	return &Counter{
		config:   Config{Leases: list, Numbers: func() map[string]uint32 { return nil }},
		accounts: make(map[string]*account), quotas: map[string]quota{"ant": {leases: quotaOfAnt}},
	}
}

// Stored is a Counter that only knows what is stored.
func Stored(kv mvcc.WatchableKV) *Counter {
	return &Counter{config: Config{KV: kv}, accounts: make(map[string]*account)}
}

// Written is what a request counts.
func Written(request any) int64 { return written(request) }
