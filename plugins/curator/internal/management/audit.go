package management

import (
	"context"
	"fmt"

	"github.com/reeveproject/reeve/plugins/curator/internal/answer"
	"github.com/reeveproject/reeve/plugins/curator/internal/rules"
	clusterv1 "github.com/reeveproject/reeve/proto/reeve/cluster/v1"
)

const (
	// defaultEntries is a few screens, and maxEntries, however long they are, less than what a client takes in one message.
	defaultEntries = 100
	maxEntries     = 1000
)

// ListAudit implements clusterv1.ManagementServiceServer. The call itself has an entry, too, but not in its own answer.
func (s *Service) ListAudit(ctx context.Context, request *clusterv1.ListAuditRequest) (*clusterv1.ListAuditResponse, error) {
	limit := int(request.GetLimit())
	switch {
	case limit == 0:
		limit = defaultEntries
	case limit > maxEntries:
		return nil, answer.Invalid(rules.Problems{{Field: "limit", Message: fmt.Sprintf("%d entries are more than the %d that are returned at once", limit, maxEntries)}})
	}
	entries, more, err := s.config.Store.ListAudit(ctx, request.GetBefore(), limit)
	if err != nil {
		return nil, err
	}
	return &clusterv1.ListAuditResponse{Entries: entries, More: more}, nil
}
