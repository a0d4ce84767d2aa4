package usage

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
