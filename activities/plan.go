package activities

import "stepwell"

// PlanStep is what the workflow needs to know of a step.
type PlanStep struct {
	ID          string `json:"id"`
	Effects     bool   `json:"effects,omitempty"`
	Selects     bool   `json:"selects,omitempty"` // has a dataSelector
	Continue    bool   `json:"continue,omitempty"`
	Concurrency int    `json:"concurrency,omitempty"`
}

// Plan makes the plan of a tool.
func Plan(t *stepwell.Tool) []PlanStep {
	plan := make([]PlanStep, len(t.Steps))
	for i := range t.Steps {
		s := &t.Steps[i]
		plan[i] = PlanStep{ID: s.ID, Effects: s.Effects(), Selects: s.DataSelector != "", Continue: s.ContinueOnFailure()}
		// Items of a transform run one after another over one state.
		if s.Concurrency > 1 && plan[i].Selects && !s.IsTransform() {
			plan[i].Concurrency = s.Concurrency
		}
	}
	return plan
}
